"""A pipeline file: its sections, parsing and checks, its queries, functions and sink."""
