"""The options of a topic's reader and writer, checked before the server is asked.

The API key is no option: options appear in plans, in logs and in the pages of Spark. It comes from the environment of
the process that talks to the server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

import msgspec

from tenure.address import parse_addresses
from tenure.client.client import Client
from tenure.client.settings import ClientSettings
from tenure.contract.names import check_topic_name, describe_value
from tenure.errors import Invalid
from tenure.limits import MIB

__all__ = ["API_KEY", "ReadOptions", "Start", "WriteOptions", "open_client", "read_options", "write_options"]

API_KEY = "TENURE_API_KEY"
"""The environment variable that holds the key."""
_SECRETS = ("apikey", "api_key", "key", "token", "password")
_RECORDS_PER_APPEND_MAX = 10_000
_APPEND_BYTES_MAX = 32 * MIB

Start = int | Literal["earliest", "latest"]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of which log is read, and how much at once. None is no limit."""

    url: str
    topic: str
    start: Start = "earliest"
    last_seq: int | None = None
    records_max: int | None = None
    """Records of one micro-batch."""
    bytes_max: int | None = None
    """Bytes of one micro-batch, reckoned with the mean size of the topic's records."""
    fail_on_loss: bool = True
    partitions_max: int = 4
    """Tasks that read at once."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The topic that rows go to, the staging directory, and the sizes of chunks and files."""

    url: str
    topic: str
    staging: str
    commit_id: str | None = None
    exactly_once: bool = True
    chunk_rows: int = 5_000
    """Records of one append."""
    chunk_bytes: int = 4 * MIB
    """Record text of one append; one longer record goes alone."""
    file_bytes: int = 64 * MIB
    """Staged bytes after which a task begins another file; what it holds in memory."""
    record_bytes_max: int = 1 * MIB
    """Payload and meta of one record; as the server's setting."""
    grace_ms: int = 86_400_000
    """Age, by the store's clock, at which a staged file that no record names is removed. Longer than any job runs."""
    retry_for_ms: int = 120_000
    """How long one append is sent again while the server is away."""


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a reader. Raises Invalid (``bad_option``)."""
    given = _Given(options)
    start = given.text("startingSeq", "earliest")
    return ReadOptions(
        url=given.url(),
        topic=given.topic(),
        start=start if start in ("earliest", "latest") else given.whole("startingSeq", 1),  # type: ignore[arg-type]
        last_seq=given.maybe("endingSeq", least=0),
        records_max=given.maybe("maxRecordsPerTrigger"),
        bytes_max=given.maybe("maxBytesPerTrigger"),
        fail_on_loss=given.flag("failOnDataLoss", True),
        partitions_max=given.whole("partitions", 2 * (os.cpu_count() or 2)),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a writer. Raises Invalid (``bad_option``)."""
    given, default = _Given(options), WriteOptions(url="", topic="", staging="")
    return WriteOptions(
        url=given.url(),
        topic=given.topic(),
        staging=given.needed("staging", "a directory for rows on their way, like file:///an/absolute/path"),
        commit_id=given.text("commitId", None),
        exactly_once=given.flag("exactlyOnce", True),
        chunk_rows=given.whole("chunkRows", default.chunk_rows, most=_RECORDS_PER_APPEND_MAX),
        chunk_bytes=given.whole("chunkBytes", default.chunk_bytes, most=_APPEND_BYTES_MAX),
        record_bytes_max=given.whole("recordBytesMax", default.record_bytes_max, most=_APPEND_BYTES_MAX),
        grace_ms=given.whole("graceMs", default.grace_ms),
        retry_for_ms=given.whole("retryForMs", default.retry_for_ms),
    )


def open_client(url: str, *, retry_for_ms: int | None = None) -> Client:
    """Open a client with the key of this process's environment. The caller closes it."""
    settings = ClientSettings()
    if retry_for_ms is not None:
        attempts = max(settings.attempts_max, retry_for_ms // settings.backoff_max_ms * 4)
        settings = ClientSettings(retry_for_ms=retry_for_ms, attempts_max=attempts)
    return Client(url, key=os.environ.get(API_KEY), settings=settings)


class _Given:
    """Options by name, in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        for secret in _SECRETS:
            if secret in self._values:
                raise _bad(f"option {secret} is refused, as options end up in plans and logs: set {API_KEY}")

    def text(self, name: str, default: str | None) -> str | None:
        return self._values.get(name.lower(), default) or default

    def needed(self, name: str, what: str) -> str:
        value = self.text(name, None)
        if value is None:
            raise _bad(f"option {name} is missing: {what}")
        return value

    def url(self) -> str:
        url = self.needed("url", "where the server is, like http://127.0.0.1:4000")
        parse_addresses(url)
        return url

    def topic(self) -> str:
        return check_topic_name(self.needed("topic", "the name of a topic"))

    def maybe(self, name: str, *, least: int = 1) -> int | None:
        return None if self.text(name, None) is None else self.whole(name, least, least=least)

    def whole(self, name: str, default: int, *, least: int = 1, most: int = 2**63 - 1) -> int:
        value = self.text(name, str(default)) or ""
        if not (value.isascii() and value.isdigit() and len(value) < 20 and least <= int(value) <= most):
            raise _bad(f"option {name} must be a whole number from {least} to {most}; got {describe_value(value)}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = (self.text(name, str(default)) or "").lower()
        if value not in ("true", "false"):
            raise _bad(f"option {name} must be true or false; got {describe_value(value)}")
        return value == "true"


def _bad(message: str) -> Invalid:
    return Invalid(message, code="bad_option")
