"""Requests and streams on sockets, blocking and on an event loop."""
