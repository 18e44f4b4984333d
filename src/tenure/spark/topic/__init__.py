"""Topics of a running server in Spark: the format ``tenure`` to read and write, and `TopicSink` for ingest jobs."""
