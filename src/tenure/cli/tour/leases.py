"""The second part of the tour: the life of a lease, step by step, on one small queue in memory."""

from __future__ import annotations

import json

from rich.console import Console

from tenure.broker.broker import Broker
from tenure.cli.screen import table
from tenure.cli.tour.checks import expect
from tenure.contract.records import Record

__all__ = ["walk_through_leases"]

_QUEUE = "mail"
_LEASE_MS = 150
_LONG_MS = 60_000
_WAIT_MS = 3_000
_Rows = list[tuple[str, str]]


async def walk_through_leases(console: Console) -> None:
    """Show expiry, nack, dead letters, redrive and extend, each checked."""
    async with await Broker.open() as broker:
        config = {"type": "queue", "lease_ms": _LEASE_MS, "max_deliveries": 2, "dead_letter": "mail.dead"}
        await broker.put_topic(_QUEUE, config)
        await broker.produce(_QUEUE, [Record(data=b'{"to":"ada"}', tag="ada")])
        steps = [*await _expire(broker), *await _nack(broker), *await _bury(broker), *await _redrive(broker)]
        steps += await _extend(broker)
        table(console, ("command", "what happened"), steps)
        expect(broker.topic(_QUEUE).count == 0, "the queue is empty at the end")


async def _expire(broker: Broker) -> _Rows:
    # A command is carried out when it is called, so no delay can come between these two.
    asked = broker.claim(_QUEUE, node="ann"), broker.claim(_QUEUE, node="bob")
    first, nobody = await asked[0], await asked[1]
    expect(first.seqs == [1], "ann holds job 1")
    expect(not nobody.jobs, "a leased job is hidden from everybody else")
    second = await broker.claim(_QUEUE, node="bob", lease_ms=_LONG_MS, wait_ms=_WAIT_MS)
    expect(second.seqs == [1] and second.deliveries(1) == 2, "the expired job went to bob, as its second delivery")
    expect(second.lease_id != first.lease_id, "a lease id is never used again")
    late = await broker.ack(_QUEUE, node="ann", seqs=[1])
    expect(late.count == 0 and late.skipped == [1], "an ack after the deadline is skipped")
    return [
        (f"ann: claim, {_LEASE_MS} ms", "job 1, delivery 1; bob, who asks too, gets nothing"),
        (f"bob: claim, wait_ms={_WAIT_MS}", "woken when ann's lease runs out: job 1, delivery 2"),
        ("ann: ack, too late", "skipped: the job is bob's now"),
    ]


async def _nack(broker: Broker) -> _Rows:
    given_back = await broker.nack(_QUEUE, node="bob", seqs=[1], reason="451 mailbox busy")
    expect(given_back.count == 1, "bob gave the job back")
    job = broker.job(_QUEUE, 1)
    ends = [delivery.end for delivery in job.history]
    expect(ends == ["expired", "nack"] and job.reason == "451 mailbox busy", "the job knows its history")
    return [("bob: nack, with a reason", f"back in the queue; its history: {', '.join(ends)} ({job.reason})")]


async def _bury(broker: Broker) -> _Rows:
    third = await broker.claim(_QUEUE, node="cat")
    expect(not third.jobs, "a job is delivered max_deliveries times and not once more")
    found = await broker.diff("mail.dead", wait_ms=_WAIT_MS)
    [letter] = found.records
    meta = json.loads(letter.meta or b"{}")
    wanted = {
        "$dead_letter_from": _QUEUE,
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
        "$dead_letter_reason": "451 mailbox busy",  # the last one that it was given back with
    }
    expect(meta == wanted and letter.data == b'{"to":"ada"}' and letter.tag == "ada", "the dead letter is the job")
    expect(broker.topic(_QUEUE).count == 0, "it is in one place, not in two")
    return [
        ("cat: claim", "nothing: job 1 was delivered twice, and max_deliveries is 2"),
        (
            "read mail.dead",
            f"there it is: from {meta['$dead_letter_from']}, {meta['$dead_letter_deliveries']} deliveries",
        ),
    ]


async def _redrive(broker: Broker) -> _Rows:
    back = await broker.redrive("mail.dead")
    expect(back.redriven == 1 and back.to == _QUEUE, "the dead letter went back where it came from")
    expect(broker.topic("mail.dead").count == 0, "and left the dead-letter topic")
    return [("redrive mail.dead", "the job is back in mail as job 2, counted from 1 again, its provenance kept")]


async def _extend(broker: Broker) -> _Rows:
    asked = broker.claim(_QUEUE, node="cat"), broker.extend(_QUEUE, node="cat", seqs=[2], lease_ms=_LONG_MS)
    claim, longer = await asked[0], await asked[1]
    expect(claim.seqs == [2] and claim.deliveries(2) == 1, "the redriven job starts over")
    expect(longer.deadlines[2] > claim.deadline, "the deadline moved")
    nobody = await broker.claim(_QUEUE, node="dan", wait_ms=2 * _LEASE_MS)
    expect(not nobody.jobs, "an extended job does not come back at its first deadline")
    done = await broker.ack(_QUEUE, node="cat", lease_id=claim.lease_id, strict=True)
    expect(done.count == 1, "the ack counts, past the first deadline")
    return [
        ("cat: claim, then extend", f"job 2, held past its first {_LEASE_MS} ms; dan waits twice as long for nothing"),
        ("cat: ack", "done: an ack is the delete"),
    ]
