"""Events: what is logged. State is a fold over these and nothing else.

Every event carries ``at_ms``, its log time in ms. ``runs`` is a flat list ``[lo, n, lo, n, …]`` of seqs, ascending and
apart: a thousand contiguous jobs are two numbers. Events travel as MessagePack arrays, so a field may be added at the
end, with a default, and never moved. Kinds below 16 belong to the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure.contract.config import TopicConfig
from tenure.core.records import ends_of
from tenure.errors import Corrupt

__all__ = [
    "KINDS",
    "KIND_OF",
    "URGENT",
    "Acked",
    "AppendExtra",
    "Appended",
    "BaseBegun",
    "BasePart",
    "Begun",
    "Carried",
    "Claimed",
    "ClaimedIsolated",
    "ClockSet",
    "DeadLettered",
    "Deleted",
    "Event",
    "Evicted",
    "Extended",
    "Lost",
    "Opened",
    "Redriven",
    "Released",
    "Returned",
    "RouterDeleted",
    "RouterMoved",
    "RouterPut",
    "StateCarried",
    "TopicCarried",
    "TopicDeleted",
    "TopicPut",
    "decode",
    "encode",
    "kind_of",
]


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The root of all events. One that is about no topic has 0 as its topic."""

    at_ms: int

    @property
    def topic(self) -> int:
        return 0


class Opened(Event, frozen=True, gc=False, array_like=True):
    """The log was opened: log time goes on from ``at_ms``; lease numbers of this opening start from its epoch."""

    epoch: int
    boot_id: str
    boot_ms: int
    wall_offset_ms: int


class ClockSet(Event, frozen=True, gc=False, array_like=True):
    """The wall clock moved against log time; ``wall = log + wall_offset_ms`` from here on."""

    wall_offset_ms: int


class TopicPut(Event, frozen=True, gc=False, array_like=True):
    """A topic came to be, or (``created`` false) its config was replaced.

    A replay that starts after a topic's base has to distinguish the two: the topic it meets is not a new one.
    ``implicit`` means that an append, a router or a dead letter made it, and no caller chose its config.
    """

    topic: int
    name: str
    config: TopicConfig
    created: bool = True
    implicit: bool = False


class TopicDeleted(Event, frozen=True, gc=False, array_like=True):
    """A topic and all its records are gone; its id is never used again.

    ``retired`` is its name where only a put may make a topic of that name again.
    """

    topic: int
    retired: str | None = None


class AppendExtra(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of an append beyond bare records; absent on the hot path.

    ``delays`` and ``wall_delays`` are flat ``[seq, due_ms, …]`` in log and wall time. ``key`` is
    (digest, payload digest, expires_ms) of an idempotency key. ``client`` is (client_id, client_seq). ``deliveries`` is
    flat ``[seq, count, …]`` for jobs that come back with a past. ``displaced`` is the client whose mark gives way to
    this one's. ``moved_from`` is the topic that dead letters, or redriven jobs, leave with this append; 0 for none.
    ``losses`` is flat ``[seq, count, …]`` for jobs that come back as suspects, under the feature ``returns``.
    """

    tagged: bool = False
    delays: list[int] = []
    wall_delays: list[int] = []
    uniques: list[tuple[int, str]] = []
    key: tuple[bytes, int, int] | None = None
    client: tuple[str, int] | None = None
    deliveries: list[int] = []
    displaced: str | None = None
    moved_from: int = 0
    losses: list[int] = []


class Appended(Event, frozen=True, gc=False, array_like=True):
    """``count`` records from ``first_seq`` on; ``ts_ms`` is their wall time."""

    topic: int
    ts_ms: int
    first_seq: int
    count: int
    ends: bytes
    blobs: bytes
    plain: bool
    extra: AppendExtra | None = None


class Deleted(Event, frozen=True, gc=False, array_like=True):
    """Records that a caller removed."""

    topic: int
    runs: list[int]
    count: int
    bytes: int


class Evicted(Event, frozen=True, gc=False, array_like=True):
    """Records removed by a cap or a TTL that the owner set; ``reason`` is ``cap`` or ``ttl``."""

    topic: int
    runs: list[int]
    count: int
    bytes: int
    reason: str


class Claimed(Event, frozen=True, gc=False, array_like=True):
    """``node`` holds these jobs under ``lease`` until log time passes ``deadline_ms``."""

    topic: int
    lease: int
    node: str
    deadline_ms: int
    runs: list[int]
    claim_id: str | None = None


class ClaimedIsolated(Claimed, frozen=True, gc=False, array_like=True):
    """A claim whose lease isolates: where it ends without a verdict, its jobs are lost and no try is counted.

    ``group`` is what may die together, a supervisor with its processes; ``only_suspects`` says that the claim took
    suspects and nothing else.
    """

    group: str = ""
    only_suspects: bool = False


class Begun(Event, frozen=True, gc=False, array_like=True):
    """A suspect that its worker begins: if it is lost now, that is a try, and it comes back ``retry_ms`` later.

    With ``is_over`` it has run for so long that another one of its group may begin: a loss is no try of this one then.
    """

    topic: int
    runs: list[int]
    node: str
    retry_ms: int
    is_over: bool = False


class Returned(Event, frozen=True, gc=False, array_like=True):
    """Jobs that their holder, or its successor, gave back: this delivery was no try. ``due_ms`` as in `Released`."""

    topic: int
    runs: list[int]
    node: str
    due_ms: int
    reason: str | None = None


class Lost(Event, frozen=True, gc=False, array_like=True):
    """Jobs whose worker is gone: a try for those that were begun, and all of them are suspects from here on.

    ``exit_code`` is what its supervisor saw; None where the worker only fell silent.
    """

    topic: int
    runs: list[int]
    node: str
    exit_code: int | None = None


class Acked(Event, frozen=True, gc=False, array_like=True):
    """Jobs completed, and thereby deleted."""

    topic: int
    runs: list[int]
    bytes: int
    node: str


class Released(Event, frozen=True, gc=False, array_like=True):
    """Jobs whose holder gave them back before the deadline; ``cause`` is ``nack`` or ``disconnect``.

    ``due_ms`` is the log time when they can be claimed again; at or before ``at_ms`` means at once. ``dues_ms``
    overrides it per job where back-off makes them differ.
    """

    topic: int
    runs: list[int]
    node: str
    due_ms: int
    dues_ms: list[int] | None = None
    reason: str | None = None
    cause: str = "nack"


class Extended(Event, frozen=True, gc=False, array_like=True):
    """A new deadline for jobs already held.

    ``cause`` is ``extend``, or ``sync`` where a slow disk ate into the lease.
    """

    topic: int
    runs: list[int]
    deadline_ms: int
    node: str
    cause: str = "extend"


class DeadLettered(Event, frozen=True, gc=False, array_like=True):
    """Jobs taken out of circulation: moved to ``dest`` and removed here, or parked in place, or both, or dropped.

    ``action`` is ``move``, ``park``, ``copy`` (parked here, a copy there) or ``drop``. ``bytes`` is what left the
    queue.
    """

    topic: int
    runs: list[int]
    action: str
    reason: str
    bytes: int
    dest: int = 0
    dest_seq: int = 0


class Redriven(Event, frozen=True, gc=False, array_like=True):
    """Parked jobs made claimable again (``dest`` 0), or dead letters moved to ``dest`` and removed here."""

    topic: int
    runs: list[int]
    bytes: int
    reset_deliveries: bool
    dest: int = 0
    dest_seq: int = 0


class RouterPut(Event, frozen=True, gc=False, array_like=True):
    """A router came to be or was replaced; ``cursor`` is the last source seq it has passed on."""

    name: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None
    allow_cycle: bool
    cursor: int


class RouterDeleted(Event, frozen=True, gc=False, array_like=True):
    """A router is gone."""

    name: str


class RouterMoved(Event, frozen=True, gc=False, array_like=True):
    """A router passed its source up to ``cursor``; ``missed`` counts source records evicted before it came."""

    name: str
    cursor: int
    forwarded: int
    missed: int = 0
    dest: int = 0


class Carried(Event, frozen=True, gc=False, array_like=True):
    """Live records rewritten at the tail so that their segment can go. ``seqs``, ``ats_ms`` and ``tss_ms`` run in step.

    The frame takes the place of all frames whose first seq lies in ``[lo, hi)``. ``lost`` says why the records could
    not be read when they were rewritten: their payload is gone, ``blobs`` is empty, ``ends`` adds up what they weighed
    and ``tss_ms`` is 0 for each. They live until they are acked, deleted or evicted.

    ``rest`` is where the last of the frames goes on to answer for the seqs from ``hi`` on, because it was too large for
    one step: its location, the bytes of its records from there, and its time. Else it is empty.
    """

    topic: int
    lo: int
    hi: int
    seqs: list[int]
    ats_ms: list[int]
    tss_ms: list[int]
    ends: bytes
    blobs: bytes
    plain: bool
    lost: str | None = None
    rest: list[int] = []

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the records weigh, also where their payload is lost."""
        return len(self.blobs) if self.lost is None else ends_of(self.ends, 0)[-1]


class TopicCarried(Event, frozen=True, gc=False, array_like=True):
    """The whole state of a topic but its payloads: every older event of the topic is unnecessary from here on."""

    topic: int
    snapshot: msgspec.Raw


class StateCarried(Event, frozen=True, gc=False, array_like=True):
    """The facts of the broker as a whole: ids, routers, clock. Every segment but the first starts with one."""

    snapshot: msgspec.Raw


class BaseBegun(Event, frozen=True, gc=False, array_like=True):
    """The base of a topic is about to be logged in parts; it shows the topic as it is here."""

    topic: int
    name: str


class BasePart(Event, frozen=True, gc=False, array_like=True):
    """A part of the snapshot of a topic, from ``offset`` on, as the topic was at its last `BaseBegun`, in ``segment``.

    With the last part, every event of the topic before that one is unnecessary; those after it are not.
    """

    topic: int
    segment: int
    offset: int
    data: bytes
    is_last: bool


KINDS: Final[dict[int, type[Event]]] = {
    16: Opened,
    17: ClockSet,
    18: TopicPut,
    19: TopicDeleted,
    20: Appended,
    21: Deleted,
    22: Evicted,
    23: Claimed,
    24: Acked,
    25: Released,
    26: Extended,
    27: DeadLettered,
    28: Redriven,
    29: RouterPut,
    30: RouterDeleted,
    31: RouterMoved,
    32: Carried,
    33: TopicCarried,
    34: StateCarried,
    35: BaseBegun,
    36: BasePart,
    37: ClaimedIsolated,
    38: Begun,
    39: Returned,
    40: Lost,
}
KIND_OF: Final[dict[type[Event], int]] = {event: kind for kind, event in KINDS.items()}
_DECODERS: Final[dict[int, Callable[[bytes], Any]]] = {
    kind: msgspec.msgpack.Decoder(event).decode for kind, event in KINDS.items()
}

URGENT: Final = frozenset(
    {
        *(TopicDeleted, RouterDeleted, Deleted, Evicted, ClockSet),
        *(Claimed, Acked, Released, Extended, DeadLettered, Redriven),
        *(ClaimedIsolated, Begun, Returned, Lost),
    }
)
"""Events that may use the reserve on a full disk: they let jobs end, or free space."""

encode: Final[Callable[[Event], bytes]] = msgspec.msgpack.Encoder().encode
"""Return the body of an event's frame."""


def kind_of(event: Event) -> int:
    """Return the kind number of an event's frame."""
    return KIND_OF[event.__class__]


def decode(kind: int, body: bytes) -> Event:
    """Return the event in a frame's body. Raises Corrupt where there is none, or one that a newer version wrote."""
    try:
        event: Event = _DECODERS[kind](body)
    except KeyError:
        raise Corrupt(f"a frame of kind {kind} means nothing to this version", kind=kind) from None
    except msgspec.MsgspecError as error:
        raise Corrupt(f"a frame of kind {kind} holds no such event: {error}", kind=kind) from error
    return event
