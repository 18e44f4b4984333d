"""When the log is written, synced, trimmed and checkpointed."""
