"""The worker runtime: a decorated function, and everything between it and the broker. See docs/design/worker.md."""
