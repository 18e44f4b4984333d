"""Callers of an open broker: who waits, who is fed, in which order."""
