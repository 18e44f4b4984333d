"""Decisions: the events that a command leads to, its reply, and the durability level that the reply waits for.

A decision is a pure function of the state, the command, the time and the payloads on disk. It raises its error before
anything has changed. It changes nothing itself: `fold` does, once the events are logged. Only time may pass on the
topics it looks at, as at any later look.
"""
