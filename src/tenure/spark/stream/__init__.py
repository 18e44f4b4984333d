"""The streaming source of a buffer."""
