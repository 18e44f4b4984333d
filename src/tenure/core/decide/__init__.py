"""Decisions: which events a command leads to, what it is answered, and how durable that must be first.

A decision is a pure function of the state, the command, the time and the payloads on disk. It raises the error that
stands in the way before anything has changed. It changes nothing itself: `fold` does, once the events are logged. Only
time may pass on the topics it looks at, as any later look would let it.
"""
