"""The fenced consumer of a group."""
