"""Pipelines as files: source, decode, steps, expectations and sink in a TOML file, run by `tenure pipeline`."""

from tenure.spark.pipeline.file.parse import read_pipeline, validate_pipeline
from tenure.spark.pipeline.file.sections import Pipeline

__all__ = ["Pipeline", "read_pipeline", "validate_pipeline"]
