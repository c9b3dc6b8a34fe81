"""What sideband runs on a training node. Several processes, because their failures must not meet."""
