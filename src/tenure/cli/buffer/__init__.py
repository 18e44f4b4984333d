"""`tenure buffer`."""
