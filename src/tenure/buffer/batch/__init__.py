"""A batch as a Parquet object: written, measured, fetched."""
