//! Opens, verifies and reads Waystation checkpoints.
