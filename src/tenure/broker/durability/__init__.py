"""Writing, syncing, trimming and checkpointing the log."""
