"""Backends, which keep the jobs of a task: a queue of a broker, or timers on Redis."""
