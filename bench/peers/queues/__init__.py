"""The queues that are measured: one module for each server, with the ways of using it."""
