"""Server-sent events: watch sessions and the life of jobs."""
