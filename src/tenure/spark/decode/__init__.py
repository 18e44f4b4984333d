"""From entries to typed columns: a schema file says what an entry holds, and what does not fit is kept aside."""

from tenure.spark.decode.frames import MALFORMED, MALFORMED_CHARS_MAX, RENAMED, decoded
from tenure.spark.decode.schema import read_schema

__all__ = ["MALFORMED", "MALFORMED_CHARS_MAX", "RENAMED", "decoded", "read_schema"]
