"""Finished days of logs, out of the store and into object storage."""
