"""Where the jobs of a task are kept: a broker's queue, or timers on Redis."""
