"""The manifest: its format, its fold, the decisions on it, and its objects."""
