"""`tenure tour`."""
