"""A call as a plan: a generator of steps, carried out by a thread or by an event loop."""
