"""A small writer and committer of Waystation checkpoints, written from the specification alone."""
