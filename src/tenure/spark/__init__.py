"""The data pipeline: from buffer and topics to tables and reports, as Spark jobs."""
