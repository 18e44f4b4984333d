"""A Delta table, with and without Delta's connector."""
