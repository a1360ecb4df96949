//! Writes and commits Waystation checkpoints.
