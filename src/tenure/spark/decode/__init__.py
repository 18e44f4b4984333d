"""Typed decode: a schema file gives the fields of an entry; an entry that does not fit is kept aside."""

from tenure.spark.decode.frames import MALFORMED, MALFORMED_CHARS_MAX, RENAMED, decoded
from tenure.spark.decode.schema import read_schema

__all__ = ["MALFORMED", "MALFORMED_CHARS_MAX", "RENAMED", "decoded", "read_schema"]
