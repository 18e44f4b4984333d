"""Pipelines as files: source, decode, steps, expectations and sink in a TOML file, run by `tenure pipeline`."""

from tenure.spark.pipeline.checks import read_pipeline, validate_pipeline
from tenure.spark.pipeline.config import Pipeline

__all__ = ["Pipeline", "read_pipeline", "validate_pipeline"]
