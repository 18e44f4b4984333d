"""Saving what is whole of a damaged log into a new directory."""
