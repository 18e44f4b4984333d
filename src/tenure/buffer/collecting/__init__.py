"""Deleting batches that nobody needs, and giving up damaged ones."""
