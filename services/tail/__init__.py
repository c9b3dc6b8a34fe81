"""What a node logs, read once and handed to the private rsyslog: journal, containers' output, files of
jobs."""
