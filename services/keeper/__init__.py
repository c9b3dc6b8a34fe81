"""What stands before the log store: takes records from racks' relays and stores every line exactly once."""
