"""The jobs of one claim in the hand of a worker."""
