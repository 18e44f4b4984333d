"""Parquet files in a directory as a table."""
