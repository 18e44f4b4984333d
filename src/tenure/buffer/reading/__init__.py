"""Reading: the fenced consumer of a group, and its lag."""
