"""The file table: Parquet files in a directory, with a commit log, staging and compaction."""
