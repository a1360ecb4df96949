"""A strict reader and validator of Waystation checkpoints, written from the specification alone."""
