"""Metrics of a broker and its queues, and pins that keep the log for its readers."""
