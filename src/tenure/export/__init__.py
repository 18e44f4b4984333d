"""The broker's lifecycle events on their way into a buffer: a process of its own that tails the log."""
