"""Sockets, messages and limits: everything below the app."""
