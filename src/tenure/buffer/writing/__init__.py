"""From entries to durable batches."""
