"""Garbage collection: delete batches that no group needs, retention, and quarantine of damaged batches."""
