"""querygate before real stores: a kit that starts them, and what a tenant may try."""
