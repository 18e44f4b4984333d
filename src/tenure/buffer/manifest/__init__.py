"""The manifest: its format, the fold of its deltas, the decisions on its state, and its objects in the store."""
