"""Training curves out of log lines: rsyslog hands lines in, samples with the lines' own time go out."""
