"""The commands of the contract as typed methods: each builds its command from keyword arguments and runs it.

The methods that only look, and those that open a stream, are `Broker`'s own: they return something else than an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, Unpack

from tenure.broker.answer import Answer, OpenAnswer
from tenure.contract.bounds import Bounds, Reaches
from tenure.contract.commands import (
    Ack,
    Append,
    Begin,
    Claim,
    Command,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    Diff,
    EndNode,
    Extend,
    Nack,
    PatchTopic,
    PutRouter,
    PutTopic,
    Redrive,
    Return,
)
from tenure.contract.options import (
    AppendOptions,
    ClaimOptions,
    LeaseOptions,
    RedriveOptions,
    RouterOptions,
    declare_options,
)
from tenure.contract.records import Record
from tenure.contract.replies import (
    BegunJob,
    DeletedRecords,
    Difference,
    EndedNode,
    Extended,
    Grant,
    Produced,
    Redriven,
    Settled,
    TopicInfo,
)
from tenure.contract.share import Share
from tenure.core.state.router import Router

__all__ = ["CommandMethods"]

T = TypeVar("T")
Reply: TypeAlias = Answer[T] | OpenAnswer[T]
"""What a caller awaits."""


class CommandMethods(ABC):
    """A method for every command that changes something. A subclass runs the commands."""

    @abstractmethod
    def run(self, command: Command[T], bounds: Bounds | None = None) -> Reply[T]:
        """Run a command for a caller within ``bounds``."""

    # Records

    @declare_options
    def produce(
        self,
        topic: str,
        records: Sequence[bytes | Record],
        *,
        share: Share | None = None,
        **options: Unpack[AppendOptions],
    ) -> Reply[Produced]:
        """Append records: contiguous seqs for all of them, or an error and nothing. ``bytes`` is a record with only
        data. ``share`` bounds what this caller may use up of what all share.
        """
        bounds = None if share is None else Bounds(share=share)
        return self.run(Append(topic=topic, records=records, **options), bounds)

    def diff(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        limit: int = 256,
        node: str | Collection[str] | None = None,
        wait_ms: int = 0,
    ) -> Reply[Difference]:
        """Read records above ``from_seq``; with ``wait_ms``, wait that long for one to come."""
        return self.run(Diff(topic=topic, from_seq=from_seq, limit=limit, node=node, wait_ms=wait_ms))

    def delete_records(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: Any = None,
        seqs: Sequence[int] | None = None,
    ) -> Reply[DeletedRecords]:
        """Remove records for good: below a seq, by tag, or by seq; several conditions are ANDed."""
        return self.run(DeleteRecords(topic=topic, before_seq=before_seq, match=match, seqs=seqs))

    # Leases

    @declare_options
    def claim(self, topic: str, *, node: str, **options: Unpack[ClaimOptions]) -> Reply[Grant]:
        """Lease jobs to ``node``. With ``wait_ms`` an empty queue is waited on; nothing polls."""
        return self.run(Claim(topic=topic, node=node, **options))

    @declare_options
    def ack(
        self, topic: str, *, node: str, seqs: Sequence[int] | None = None, **leases: Unpack[LeaseOptions]
    ) -> Reply[Settled]:
        """Complete jobs, which deletes them. Name seqs, or a lease for everything still held under it."""
        return self.run(Ack(topic=topic, node=node, seqs=seqs, **leases))

    @declare_options
    def nack(
        self,
        topic: str,
        *,
        node: str,
        seqs: Sequence[int] | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
        dead: bool = False,
        **leases: Unpack[LeaseOptions],
    ) -> Reply[Settled]:
        """Give jobs back, now or later; ``dead`` dead-letters them at once."""
        command = Nack(topic=topic, node=node, seqs=seqs, delay_ms=delay_ms, reason=reason, dead=dead, **leases)
        return self.run(command)

    @declare_options
    def return_jobs(
        self,
        topic: str,
        *,
        node: str,
        seqs: Sequence[int] | None = None,
        delay_ms: int = 0,
        reason: str | None = None,
        **leases: Unpack[LeaseOptions],
    ) -> Reply[Settled]:
        """Give jobs back, now or later, because this delivery was no try: they were not run to an end."""
        return self.run(Return(topic=topic, node=node, seqs=seqs, delay_ms=delay_ms, reason=reason, **leases))

    def begin(self, topic: str, *, node: str, seq: int, lease_id: str) -> Reply[BegunJob]:
        """Begin a suspect, before anything of it is run: if its worker is lost now, that is a try."""
        return self.run(Begin(topic=topic, node=node, seq=seq, lease_id=lease_id))

    def end_node(
        self, topic: str, *, node: str, seqs: Sequence[int] = (), exit_code: int | None = None
    ) -> Reply[EndedNode]:
        """End what a process held that has ended: ``seqs`` are the jobs that it had begun, which are lost."""
        return self.run(EndNode(topic=topic, node=node, seqs=seqs, exit_code=exit_code))

    @declare_options
    def extend(
        self,
        topic: str,
        *,
        node: str,
        seqs: Sequence[int] | None = None,
        lease_ms: int | None = None,
        **leases: Unpack[LeaseOptions],
    ) -> Reply[Extended]:
        """Set the deadline of held jobs to now plus ``lease_ms``."""
        return self.run(Extend(topic=topic, node=node, seqs=seqs, lease_ms=lease_ms, **leases))

    @declare_options
    def redrive(
        self,
        topic: str,
        *,
        seqs: Sequence[int] | None = None,
        reaches: Reaches | None = None,
        **options: Unpack[RedriveOptions],
    ) -> Reply[Redriven]:
        """Put dead letters back to work: parked jobs in place, records of a dead-letter topic where they came from.

        A letter whose origin the caller does not reach (``reaches`` says so by name) stays where it is.
        """
        return self.run(Redrive(topic=topic, seqs=seqs, **options), Bounds(reaches=reaches))

    # Topics and routers

    def put_topic(
        self, topic: str, config: Mapping[str, Any] | None = None, *, share: Share | None = None
    ) -> Reply[tuple[TopicInfo, bool]]:
        """Create a topic or replace its config; the second part of the reply is True where it was created. ``share``
        bounds what this caller may use up of what all share.
        """
        return self.run(PutTopic(topic=topic, config={} if config is None else config), Bounds(share=share))

    def patch_topic(self, topic: str, config: Mapping[str, Any]) -> Reply[TopicInfo]:
        """Change the named fields of a topic's config; None returns a field to its default, the others stay."""
        return self.run(PatchTopic(topic=topic, config=config))

    def delete_topic(
        self, topic: str, *, if_empty: bool = False, reaches: Reaches | None = None
    ) -> Reply[tuple[bool, list[str]]]:
        """Delete a topic with its records, and the routers at either end. ``reaches`` says which names the caller may
        change: Denied where one of those routers has another.
        """
        return self.run(DeleteTopic(topic=topic, if_empty=if_empty), Bounds(reaches=reaches))

    @declare_options
    def put_router(
        self, router: str, *, source: str, dest: str, share: Share | None = None, **options: Unpack[RouterOptions]
    ) -> Reply[tuple[Router, bool]]:
        """Create or replace a router; it copies what is appended to ``source`` from now on.

        ``filter`` is a match on tags, as a delete takes it. The second part of the reply is True where it was created.
        ``share`` bounds what this caller may use up of what all share.
        """
        return self.run(PutRouter(router=router, source=source, dest=dest, **options), Bounds(share=share))

    def delete_router(self, router: str) -> Reply[bool]:
        """Remove a router."""
        return self.run(DeleteRouter(router=router))
