"""The batch as a Parquet object: its format, the check of its decoded size, and fetching it."""
