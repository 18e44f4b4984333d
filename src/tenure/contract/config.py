"""`TopicConfig`: a topic's settings with their bounds and defaults, and the parsing of a request's config.

There are two kinds of bound. A bad value (a wrong type, a negative number, a priority of 5000) is Invalid. An extreme
duration is clamped: ``lease_ms`` and ``claim_jitter_ms`` by the contract, and every duration to a hundred years,
because callers write 2**64 - 1 for "for ever", and a deadline computed from it must fit the eight bytes that the log
and a roaring bitmap have for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from tenure.contract.fields import FACTOR_MAX, U64_MAX, Factor, Name, Priority, Whole
from tenure.contract.names import check_topic_name, describe_value
from tenure.errors import Conflict, Invalid

__all__ = [
    "CLAIM_JITTER_MS_MAX",
    "DEFAULTS",
    "DURATION_MS_MAX",
    "LEASE_MS_MAX",
    "LEASE_MS_MIN",
    "PRIORITY_MAX",
    "SYNCED",
    "Backoff",
    "Discard",
    "DlqStrategy",
    "Durability",
    "TopicConfig",
    "TopicType",
    "as_dict",
    "clamp_durations",
    "intern_config",
    "parse_config",
    "patch_config",
]

DURATION_MS_MAX: Final = 100 * 365 * 86_400_000
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 86_400_000
CLAIM_JITTER_MS_MAX: Final = 5_000
PRIORITY_MAX: Final = 1_000

TopicType = Literal["log", "queue"]
Discard = Literal["old", "reject"]
Durability = Literal["memory", "disk", "fsync", "replicated"]
DlqStrategy = Literal["skip", "block", "block_and_dlq"]

_TYPES: Final[tuple[TopicType, ...]] = ("log", "queue")
_DISCARDS: Final[tuple[Discard, ...]] = ("old", "reject")
_DURABILITIES: Final[tuple[Durability, ...]] = ("memory", "disk", "fsync", "replicated")
SYNCED: Final = frozenset({"fsync", "replicated"})
"""The classes whose writes are answered once they are synced."""
_DLQ_STRATEGIES: Final[tuple[DlqStrategy, ...]] = ("skip", "block", "block_and_dlq")

_T = TypeVar("_T")


class Backoff(msgspec.Struct, frozen=True, gc=False, array_like=True, kw_only=True):
    """Wait ``min_ms`` before the second delivery, ``factor`` times as long before each further one, at most ``max_ms``.

    ``jitter`` spreads each wait over its upper half, so that jobs that failed together do not return together.
    """

    min_ms: Whole = 1_000
    max_ms: Whole = 3_600_000
    factor: Factor = 2.0
    jitter: bool = True


class TopicConfig(msgspec.Struct, frozen=True, gc=False, array_like=True, kw_only=True):
    """The settings of one topic, as logged and as answered; 0 turns a limit off.

    Logged as an array with every value in it, so that a default that changes later does not change old topics.
    New fields go at the end. The bodies of requests and the replies are derived from this class.
    """

    type: TopicType = "log"
    ttl_ms: Whole = 0
    cap_records: Whole = 0
    cap_bytes: Whole = 0
    discard: Discard = "old"
    durability: Durability = "disk"
    priority: Priority | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Whole = 120_000
    dedupe_node: bool = True
    lease_ms: Whole = 30_000
    claim_jitter_ms: Whole = 0
    max_deliveries: Whole = 0
    dead_letter: Name | None = None
    leases_durable: bool = False
    max_ack_holes: Whole = 0
    max_in_flight: Whole = 0
    dlq_strategy: DlqStrategy = "skip"
    retry_backoff: Backoff | None = None

    @property
    def durable(self) -> bool:
        """Return whether writes are answered only once synced: the older name for ``durability == "fsync"``.

        Where the log has a home in a store, synced means that the home has it, and ``replicated`` is the same.
        """
        return self.durability in SYNCED


DEFAULTS: Final = TopicConfig()


def parse_config(given: Mapping[str, Any], *, topic: str, existing: TopicConfig | None = None) -> TopicConfig:
    """Return the config that a PUT of ``given`` on ``topic`` asks for; unknown fields are ignored.

    PUT replaces: what is left out returns to its default, except ``type``, which stays as ``existing`` has it.
    Raises Invalid for a bad value, and Conflict (``topic_exists_incompatible``) for another type.
    """
    fields = _Fields("config", given, defaults=DEFAULTS)
    return intern_config(
        TopicConfig(
            type=_type(fields, topic=topic, existing=existing),
            ttl_ms=fields.duration_ms("ttl_ms"),
            cap_records=fields.whole("cap_records"),
            cap_bytes=fields.whole("cap_bytes"),
            discard=fields.choice("discard", _DISCARDS),
            durability=_durability(fields),
            priority=_priority(fields),
            auto_priority=fields.flag("auto_priority"),
            auto_create=fields.flag("auto_create"),
            idempotency_window_ms=fields.duration_ms("idempotency_window_ms"),
            dedupe_node=fields.flag("dedupe_node"),
            lease_ms=min(max(fields.whole("lease_ms"), LEASE_MS_MIN), LEASE_MS_MAX),
            claim_jitter_ms=min(fields.whole("claim_jitter_ms"), CLAIM_JITTER_MS_MAX),
            max_deliveries=fields.whole("max_deliveries"),
            dead_letter=_dead_letter(fields, topic=topic),
            leases_durable=fields.flag("leases_durable"),
            max_ack_holes=fields.whole("max_ack_holes"),
            max_in_flight=fields.whole("max_in_flight"),
            dlq_strategy=fields.choice("dlq_strategy", _DLQ_STRATEGIES),
            retry_backoff=_backoff(fields.raw("retry_backoff")),
        )
    )


def patch_config(given: Mapping[str, Any], *, topic: str, existing: TopicConfig) -> TopicConfig:
    """Return ``existing`` with the fields of ``given`` in their place; the other fields stay as they are.

    A null returns a field to its default, which for ``priority``, ``dead_letter`` and ``retry_backoff`` is null itself.
    ``retry_backoff`` is merged field by field in the same way. Raises Invalid for a bad value, and
    Conflict (``topic_exists_incompatible``) for another type.
    """
    if not isinstance(given, Mapping):
        raise Invalid(f"config must be an object; got {describe_value(given)}", field="config")
    stored = as_dict(existing)
    del stored["durable"]
    if "durable" in given and "durability" not in given:  # else the stored class would win over its alias
        del stored["durability"]
    merged = _merge(stored, given)
    if isinstance(given.get("retry_backoff"), Mapping):
        merged["retry_backoff"] = _merge(stored["retry_backoff"] or {}, given["retry_backoff"])
    return parse_config(merged, topic=topic, existing=existing)


def _merge(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**stored, **given}.items() if value is not None}


def clamp_durations(config: TopicConfig, *, window_ms_max: int, backoff_ms_max: int) -> TopicConfig:
    """Return a config whose idempotency window and back-off are clamped to an operator's limits."""
    backoff = config.retry_backoff
    if config.idempotency_window_ms <= window_ms_max and (backoff is None or backoff.max_ms <= backoff_ms_max):
        return config
    if backoff is not None:
        within = {name: min(getattr(backoff, name), backoff_ms_max) for name in ("min_ms", "max_ms")}
        backoff = msgspec.structs.replace(backoff, **within)
    window_ms = min(config.idempotency_window_ms, window_ms_max)
    return intern_config(msgspec.structs.replace(config, idempotency_window_ms=window_ms, retry_backoff=backoff))


def as_dict(config: TopicConfig) -> dict[str, Any]:
    """Return every field as an answer shows it, the alias ``durable`` included, on logs too."""
    fields = msgspec.structs.asdict(config)
    fields["durable"] = config.durable
    if config.retry_backoff is not None:
        fields["retry_backoff"] = msgspec.structs.asdict(config.retry_backoff)
    return fields


_SHARED_MAX: Final = 1_024
_shared: Final[dict[TopicConfig, TopicConfig]] = {DEFAULTS: DEFAULTS}


def intern_config(config: TopicConfig) -> TopicConfig:
    """Return an equal config, for most callers the same object: 100,000 topics mostly have one config.

    Only identity and memory depend on this table; it is emptied when full, so odd configs cannot make it grow.
    """
    known = _shared.get(config)
    if known is not None:
        return known
    if len(_shared) >= _SHARED_MAX:
        _shared.clear()
        _shared[DEFAULTS] = DEFAULTS
    _shared[config] = config
    return config


class _Fields:
    """The fields of one JSON object, read by kind: each reader returns a legal value or raises Invalid."""

    def __init__(self, what: str, given: object, *, defaults: msgspec.Struct, prefix: str = "") -> None:
        if not isinstance(given, Mapping):
            raise Invalid(f"{what} must be an object; got {describe_value(given)}", field=what)
        self.given = given
        self._defaults = defaults
        self._prefix = prefix

    def refusal(self, field: str, wanted: str) -> Invalid:
        field_path = self._prefix + field
        return Invalid(f"{field_path} must be {wanted}; got {describe_value(self.raw(field))}", field=field_path)

    def raw(self, field: str) -> Any:
        """Return the value that was sent, or the default; an explicit null is not the default."""
        return self.given[field] if field in self.given else getattr(self._defaults, field)

    def whole(self, field: str) -> int:
        value = self.raw(field)
        # To Python, though not to JSON, true is an int.
        if type(value) is int and 0 <= value <= U64_MAX:
            return value
        raise self.refusal(field, f"a whole number from 0 to {U64_MAX}")

    def duration_ms(self, field: str) -> int:
        return min(self.whole(field), DURATION_MS_MAX)

    def flag(self, field: str) -> bool:
        value = self.raw(field)
        if isinstance(value, bool):
            return value
        raise self.refusal(field, "true or false")

    def choice(self, field: str, options: tuple[_T, ...]) -> _T:
        value = self.raw(field)
        for option in options:
            if value == option:
                return option
        raise self.refusal(field, "one of " + ", ".join(map(repr, options)))


def _type(fields: _Fields, *, topic: str, existing: TopicConfig | None) -> TopicType:
    if existing is not None and "type" not in fields.given:
        return existing.type
    wanted = fields.choice("type", _TYPES)
    if existing is not None and wanted != existing.type:
        raise Conflict(
            f"topic {describe_value(topic)} is a {existing.type}, not a {wanted}: delete it first or use another name",
            code="topic_exists_incompatible",
            type=existing.type,
        )
    return wanted


def _durability(fields: _Fields) -> Durability:
    """Return the durability. Both names are checked; an explicit ``durability`` wins over its alias ``durable``.

    ``ephemeral`` is another word for ``memory``, and is stored as that.
    """
    alias: Durability = "fsync" if fields.flag("durable") else "disk"
    if fields.raw("durability") == "ephemeral":
        return "memory"
    durability = fields.choice("durability", _DURABILITIES)
    return alias if "durable" in fields.given and "durability" not in fields.given else durability


def _priority(fields: _Fields) -> int | None:
    value = fields.raw("priority")
    if value is None:
        return None
    if type(value) is int and -PRIORITY_MAX <= value <= PRIORITY_MAX:
        return value
    raise fields.refusal("priority", f"null or a whole number from {-PRIORITY_MAX} to {PRIORITY_MAX}")


def _dead_letter(fields: _Fields, *, topic: str) -> str | None:
    value = fields.raw("dead_letter")
    if value is None:
        return None
    try:
        name = check_topic_name(value)
    except Invalid as error:
        raise Invalid(f"dead_letter: {error.message}", field="dead_letter") from None
    if name == topic:
        raise fields.refusal("dead_letter", "another topic than the queue itself")
    return name


def _backoff(given: object) -> Backoff | None:
    if given is None:
        return None
    fields = _Fields("retry_backoff", given, defaults=Backoff(), prefix="retry_backoff.")
    min_ms, max_ms = fields.duration_ms("min_ms"), fields.duration_ms("max_ms")
    if max_ms < min_ms:
        if "max_ms" in fields.given:
            raise fields.refusal("max_ms", f"at least min_ms, which is {min_ms}")
        max_ms = min_ms
    factor = fields.raw("factor")
    if type(factor) not in (int, float) or not 1 <= factor <= FACTOR_MAX:
        raise fields.refusal("factor", f"a number from 1 to {FACTOR_MAX:g}")
    return Backoff(min_ms=min_ms, max_ms=max_ms, factor=float(factor), jitter=fields.flag("jitter"))
