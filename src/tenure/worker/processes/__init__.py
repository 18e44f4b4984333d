"""Executors, child processes for handlers, and the supervisor of several worker processes."""
