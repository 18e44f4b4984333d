"""Jobs on a buffer: ingest, backfill, compaction, streaming, and how they plan and retry."""
