"""Sinks: tables that take every range exactly once."""
