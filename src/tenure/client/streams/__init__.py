"""Streams that resume by themselves."""
