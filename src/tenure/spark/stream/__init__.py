"""The streaming source of a buffer, ``tenure-buffer``."""
