"""What `tenure buffer produce` reads: lines, CSV, JSON documents and Parquet, plain or compressed, as entries."""
