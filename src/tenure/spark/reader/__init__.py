"""A range of a buffer as a DataFrame."""
