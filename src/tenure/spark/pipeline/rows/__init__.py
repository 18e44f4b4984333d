"""The rows of a pipeline: decode, steps, expectations, rows set aside, counts, and the tables they go to."""
