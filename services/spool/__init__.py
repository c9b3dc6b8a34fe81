"""rsyslog's queues on disk: made whole again before rsyslog starts."""
