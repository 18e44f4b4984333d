"""Calls as plans: generators of steps, carried out by a thread or by an event loop."""
