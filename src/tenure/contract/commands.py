"""Commands: each request of the contract as one value, which broker, server and client share.

The broker runs it, the server decodes it, the client encodes it.

The fields are the wire's, and their bounds are part of the type: a body is decoded into its command, and
``/openapi.json`` shows the same types. A field whose default is null may be null; any other may only be left out. A
decision checks bounds that clamp or depend on settings, and checks every field again, because a caller in process may
pass anything. The docstrings of commands that are bodies are in ``/openapi.json`` too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import field

from tenure.contract import replies
from tenure.contract.fields import Key, LeaseIds, Limit, Match, Name, Node, Seqs, SettledSeqs, Whole
from tenure.contract.records import Record
from tenure.contract.repeat import Repeat

__all__ = [
    "Ack",
    "Append",
    "AppendFields",
    "Begin",
    "Claim",
    "Command",
    "DeleteRecords",
    "DeleteRouter",
    "DeleteTopic",
    "Diff",
    "EndNode",
    "Extend",
    "GetJob",
    "GetRouter",
    "GetTopic",
    "ListJobs",
    "ListLeases",
    "ListRouters",
    "ListTopics",
    "Nack",
    "OfHolder",
    "PatchTopic",
    "PutRouter",
    "PutTopic",
    "Redrive",
    "RedriveFields",
    "Return",
    "RouterFields",
    "Strip",
]

R = TypeVar("R")


class Command(msgspec.Struct, Generic[R], frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The root of all commands; ``R`` is the type of the reply. ``repeat`` says what a second copy of it does.

    A client writes a command as the body of its request; a field that has its default is left out.
    """

    repeat: ClassVar[Repeat] = Repeat.READ


class _OnTopic(Command[R], frozen=True, kw_only=True, gc=False):
    """A command on one topic. A request names the topic in its path, so the body has ``$topic``, which stays unused."""

    topic: str = field(default="", name="$topic")


# Records


class AppendFields(Command[replies.Produced], frozen=True, kw_only=True, gc=False):
    """The fields of an append beside its records. A key or a client's number makes the call safe to repeat."""

    repeat = Repeat.SAFE

    node: str | None = None
    idempotency_key: str | None = None
    client_id: str | None = None
    client_seq: int | None = None
    create: bool = True
    config: Mapping[str, Any] | None = None


class Append(AppendFields, frozen=True, kw_only=True, gc=False):
    """Append records, all or none. ``bytes`` is a record with only data."""

    topic: str
    records: Sequence[bytes | Record]


class Diff(Command[replies.Difference], frozen=True, kw_only=True, gc=False):
    """Read records above ``from_seq``, but for those that ``node`` wrote; with ``wait_ms``, wait that long for one."""

    topic: str
    from_seq: int = 0
    limit: int = 256
    node: str | Collection[str] | None = None
    wait_ms: int = 0


class DeleteRecords(_OnTopic[replies.DeletedRecords], frozen=True, kw_only=True, gc=False):
    """Which records to remove: at least one condition; several are ANDed."""

    repeat = Repeat.NEVER

    before_seq: Whole | None = None
    match: Match | None = None
    seqs: Seqs | None = None


# Leases


class Claim(_OnTopic[replies.Grant], frozen=True, kw_only=True, gc=False):
    """Lease up to ``max`` jobs to ``node``.

    A lease that ``isolate`` asks for is no try where it ends without a verdict: its jobs are lost, and handed out as
    suspects from then on, apart from the others. ``group`` names the processes that may die together (by default the
    node alone); ``suspects`` takes suspects and nothing else.
    """

    repeat = Repeat.SAFE  # by its claim_id; a claim with auto_ack is never repeated

    node: Node
    max_count: Whole = field(default=1, name="max")
    lease_ms: Whole | None = None
    wait_ms: Whole = 0
    claim_id: Key | None = None
    auto_ack: bool = False
    isolate: bool = False
    group: Node | None = None
    suspects: bool = False


class OfHolder(_OnTopic[R], frozen=True, kw_only=True, gc=False):
    """A command of a worker about jobs that it holds: those in ``seqs``, or everything held under ``lease_id``."""

    repeat = Repeat.SAFE

    node: Node
    seqs: SettledSeqs | None = None
    lease_ids: LeaseIds | None = None
    lease_id: str | None = None
    strict: bool = False


class Ack(OfHolder[replies.Settled], frozen=True, kw_only=True, gc=False):
    """Complete jobs: those in ``seqs``, or everything still held under ``lease_id``."""


class Nack(OfHolder[replies.Settled], frozen=True, kw_only=True, gc=False):
    """Give jobs back, now or after ``delay_ms``; ``dead`` dead-letters them at once."""

    delay_ms: Whole | None = None
    reason: str | None = None
    dead: bool = False


class Return(OfHolder[replies.Settled], frozen=True, kw_only=True, gc=False):
    """Give jobs back, now or after ``delay_ms``, because this delivery was no try: they were not run to an end."""

    delay_ms: Whole = 0
    reason: str | None = None


class Begin(_OnTopic[replies.BegunJob], frozen=True, kw_only=True, gc=False):
    """Begin a suspect, before anything of it is run: if its worker is lost now, that is a try.

    Refused (``busy``) while the group of its lease has another job begun, so that a loss has one cause.
    """

    repeat = Repeat.SAFE

    node: Node
    seq: Whole
    lease_id: str


class EndNode(Command[replies.EndedNode], frozen=True, kw_only=True, gc=False):
    """The process of ``node`` has ended: of the jobs that it held on a topic it had begun these ``seqs``, which are
    lost; the others are given back.
    """

    repeat = Repeat.SAFE

    topic: str
    node: str
    seqs: Sequence[int] = ()
    exit_code: int | None = None


class Extend(OfHolder[replies.Extended], frozen=True, kw_only=True, gc=False):
    """Set the deadline of held jobs to now plus ``lease_ms``; it may be left out where ``lease_id`` is given."""

    lease_ms: Whole | None = None


class RedriveFields(Command[replies.Redriven], frozen=True, kw_only=True):
    """Put dead letters back to work: all, or those that every condition takes; ``dry_run`` only names them."""

    repeat = Repeat.NEVER

    to: Name | None = None
    match: Match | None = None
    seqs: SettledSeqs | None = None
    reason_like: str | None = None
    limit: Limit | None = None
    reset_deliveries: bool = True
    dry_run: bool = False


class Redrive(RedriveFields, frozen=True, kw_only=True):
    """Put dead letters back to work, those whose origin the caller reaches."""

    topic: str


# Topics and routers


class PutTopic(Command[tuple[replies.TopicInfo, bool]], frozen=True, kw_only=True):
    """Create a topic or replace its config."""

    repeat = Repeat.SAFE

    topic: str
    config: Mapping[str, Any]


class PatchTopic(Command[replies.TopicInfo], frozen=True, kw_only=True):
    """Change the named fields of a topic's config and leave the others."""

    repeat = Repeat.SAFE

    topic: str
    config: Mapping[str, Any]


class DeleteTopic(Command[tuple[bool, list[str]]], frozen=True, kw_only=True):
    """Delete a topic, its records and the routers at either end, all of which the caller must reach."""

    repeat = Repeat.NEVER

    topic: str
    if_empty: bool = False


class RouterFields(Command[tuple[Any, bool]], frozen=True, kw_only=True):
    """A router: what is appended to ``source`` is copied to ``dest``."""

    repeat = Repeat.SAFE

    source: Name
    dest: Name
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Match | None = None
    allow_cycle: bool = False


class PutRouter(RouterFields, frozen=True, kw_only=True):
    """Create or replace a router."""

    router: str


class DeleteRouter(Command[bool], frozen=True, kw_only=True):
    """Remove a router."""

    repeat = Repeat.NEVER

    router: str


# Reads


class GetTopic(Command[replies.TopicInfo], frozen=True, kw_only=True):
    """Return a topic's state and config; ``touch`` counts as a read for its automatic priority."""

    topic: str
    touch: bool = True


class ListTopics(Command[replies.Page[str]], frozen=True, kw_only=True):
    """List the names of topics, in order."""

    prefix: str = ""
    limit: int = 100
    cursor: str | None = None


class GetRouter(Command[Any], frozen=True, kw_only=True):
    """Return one router."""

    router: str


class ListRouters(Command[replies.Page[Any]], frozen=True, kw_only=True):
    """List routers by name, those between the given topics only, and those that the caller reaches."""

    prefix: str = ""
    source: str | None = None
    dest: str | None = None
    limit: int = 100
    cursor: str | None = None


class ListJobs(Command[replies.Page[replies.JobRow]], frozen=True, kw_only=True):
    """List jobs in one state: ready, in_flight, delayed, parked, or suspect, which are ready ones that wait apart."""

    topic: str
    state: str = "ready"
    limit: int = 100
    cursor: str | None = None


class GetJob(Command[replies.JobInfo], frozen=True, kw_only=True):
    """Return one job: its record, its state and its failed deliveries."""

    topic: str
    seq: int


class ListLeases(Command[replies.Page[replies.LeaseRow]], frozen=True, kw_only=True):
    """List the live leases of a queue."""

    topic: str
    limit: int = 100
    cursor: str | None = None


class Strip(Command[replies.QueueStrip], frozen=True, kw_only=True):
    """Return both ends of a queue, its leases and its counts."""

    topic: str
    head: int = 100
    tail: int = 20
    leases: int = 50
