"""Sharded, resumable training checkpoints."""
