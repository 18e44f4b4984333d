"""The export of the broker's lifecycle events into a buffer, by a process of its own that tails the log."""
