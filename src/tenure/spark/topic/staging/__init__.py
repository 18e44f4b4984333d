"""Staging of rows on their way into a topic: files, chunks, the record of a batch, and its delivery."""
