"""Handlers in child processes, and several worker processes under one."""
