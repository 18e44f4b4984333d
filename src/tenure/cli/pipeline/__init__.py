"""`tenure pipeline`."""
