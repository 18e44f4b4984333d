"""Running a pipeline: as a batch job, as a streaming query with its progress, from a topic."""
