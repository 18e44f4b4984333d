"""Jobs on a buffer: ingest, backfill, compaction, streaming, with their plans, retries and error causes."""
