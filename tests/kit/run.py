"""Commands against an engine without a broker, in one line each: writes return the answer, looks return the reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenure import Record
from tenure.broker.answer import Answer
from tenure.broker.engine import Engine
from tenure.contract import commands as c
from tenure.contract import replies
from tenure.core.decide.decision import Steps
from tenure.core.decide.evict import evict_over_cap as over_cap
from tenure.core.decide.evict import evict_over_ttl as over_ttl
from tenure.core.decide.forward import forward as forwarding
from tenure.core.decide.holding import release as releasing
from tenure.core.decide.losses import lose as losing
from tenure.core.level import Level
from tenure.core.state.router import Router
from tenure.core.state.topic import Topic


def produce(
    engine: Engine, topic: str, records: Sequence[bytes | Record], node: str | None = None, **fields: Any
) -> Answer[replies.Produced]:
    return engine.run(c.Append(topic=topic, records=records, node=node, **fields))


def diff(engine: Engine, topic: str, **fields: Any) -> replies.Difference:
    return engine.run(c.Diff(topic=topic, **fields)).reply


def delete_records(engine: Engine, topic: str, **fields: Any) -> Answer[replies.DeletedRecords]:
    return engine.run(c.DeleteRecords(topic=topic, **fields))


def claim(engine: Engine, topic: str, node: str, max_count: int = 1, **fields: Any) -> Answer[replies.Grant]:
    return engine.run(c.Claim(topic=topic, node=node, max_count=max_count, **fields))


def ack(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Settled]:
    return engine.run(c.Ack(topic=topic, node=node, seqs=seqs, **fields))


def nack(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Settled]:
    return engine.run(c.Nack(topic=topic, node=node, seqs=seqs, **fields))


def extend(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Extended]:
    return engine.run(c.Extend(topic=topic, node=node, seqs=seqs, **fields))


def release(engine: Engine, topic: Topic, numbers: Sequence[int]) -> None:
    engine.state.advance(topic, engine.now())
    engine.carry_out(releasing(engine.state, topic, numbers, engine.now()))


def return_jobs(
    engine: Engine, topic: str, node: str, seqs: Sequence[int] | None = None, **fields: Any
) -> Answer[replies.Settled]:
    return engine.run(c.Return(topic=topic, node=node, seqs=seqs, **fields))


def begin(engine: Engine, topic: str, **fields: Any) -> Answer[replies.BegunJob]:
    return engine.run(c.Begin(topic=topic, **fields))


def end_node(engine: Engine, topic: str, **fields: Any) -> Answer[replies.EndedNode]:
    return engine.run(c.EndNode(topic=topic, **fields))


def lose(engine: Engine, topic: Topic, numbers: Sequence[int]) -> None:
    engine.state.advance(topic, engine.now())
    engine.carry_out(losing(engine.state, topic, numbers, engine.now()))


def redrive(engine: Engine, topic: str, **fields: Any) -> Answer[replies.Redriven]:
    return engine.run(c.Redrive(topic=topic, **fields))


def put_topic(
    engine: Engine, topic: str, config: Mapping[str, Any], **fields: Any
) -> Answer[tuple[replies.TopicInfo, bool]]:
    return engine.run(c.PutTopic(topic=topic, config=config, **fields))


def patch_topic(engine: Engine, topic: str, config: Mapping[str, Any]) -> Answer[replies.TopicInfo]:
    return engine.run(c.PatchTopic(topic=topic, config=config))


def delete_topic(engine: Engine, topic: str, **fields: Any) -> Answer[tuple[bool, list[str]]]:
    return engine.run(c.DeleteTopic(topic=topic, **fields))


def topic_info(engine: Engine, topic: str, **fields: Any) -> replies.TopicInfo:
    return engine.run(c.GetTopic(topic=topic, **fields)).reply


def list_topics(engine: Engine, **fields: Any) -> replies.Page[str]:
    return engine.run(c.ListTopics(**fields)).reply


def put_router(engine: Engine, router: str, **fields: Any) -> Answer[tuple[Router, bool]]:
    return engine.run(c.PutRouter(router=router, **fields))


def delete_router(engine: Engine, router: str) -> Answer[bool]:
    return engine.run(c.DeleteRouter(router=router))


def get_router(engine: Engine, router: str) -> Router:
    found: Router = engine.run(c.GetRouter(router=router)).reply
    return found


def forward(engine: Engine, source: Topic) -> bool:
    """Let the routers of a topic go a step; returns whether some have more to do."""
    more = False
    for router in list(engine.state.routers_from.get(source.name, ())):
        more |= engine.carry_out(forwarding(engine.state, router, engine.now(), engine.reader)).reply.more
    return more


def evict_over_cap(engine: Engine, topic: Topic, now: int) -> None:
    engine.carry_out(_alone(over_cap(engine.state, topic, now, engine.reader)))


def evict_over_ttl(engine: Engine, topic: Topic, now: int) -> None:
    engine.carry_out(_alone(over_ttl(engine.state, topic, now, engine.reader)))


def _alone(steps: Steps[object]) -> Steps[tuple[None, int]]:
    yield from steps
    return None, Level.NOW


def jobs(engine: Engine, topic: str, **fields: Any) -> replies.Page[replies.JobRow]:
    return engine.run(c.ListJobs(topic=topic, **fields)).reply


def job(engine: Engine, topic: str, seq: int) -> replies.JobInfo:
    return engine.run(c.GetJob(topic=topic, seq=seq)).reply


def leases(engine: Engine, topic: str, **fields: Any) -> replies.Page[replies.LeaseRow]:
    return engine.run(c.ListLeases(topic=topic, **fields)).reply


def strip(engine: Engine, topic: str, **fields: Any) -> replies.QueueStrip:
    return engine.run(c.Strip(topic=topic, **fields)).reply
