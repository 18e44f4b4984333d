"""A table of PostgreSQL as a sink."""
