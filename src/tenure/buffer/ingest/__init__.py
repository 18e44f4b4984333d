"""Ingest without Spark: from a buffer into a table, exactly once, through an async sink."""
