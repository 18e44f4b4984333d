"""Topics and routers against a naive model of them: caps, TTLs, deletes, names for appends, reads, copies, crashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import asdict

from tenure import Record, Settings
from tenure.core.records import ends_of, pack
from tenure.core.state.idempotency import digest_key
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.core.tag_match import Match
from tenure.errors import Conflict, NotFound, Overloaded
from tests.kit import run
from tests.model.machine import EngineMachine
from tests.model.naive_topic import (
    CLIENT_MARKS_MAX,
    HOPS_MAX,
    MARK_KEPT_MS,
    MARKS_IDLE_MS,
    STEP_RECORDS,
    Kept,
    Naive,
    NaiveRouter,
    NaiveWorld,
)

#: Only ``t`` has a TTL, always: rewriting merges records of a topic without one whatever their age, so one that got a
#: TTL later would keep them longer.
NAMES = st.sampled_from(["a", "b", "c", "t"])
TTL_MS = 30_000
NODES = st.sampled_from([None, "n1", "n2"])
TAGS = st.sampled_from([None, "x", "xy", "z"])
CONFIGS = st.fixed_dictionaries(
    {
        "cap_records": st.sampled_from([0, 0, 3, 8]),
        "cap_bytes": st.sampled_from([0, 0, 900]),
        "discard": st.sampled_from(["old", "old", "reject"]),
        "dedupe_node": st.sampled_from([True, True, False]),
        "idempotency_window_ms": st.sampled_from([2_000, 60_000]),
        "auto_create": st.sampled_from([True, True, True, False]),
    }
)
RECORDS = st.lists(
    st.tuples(st.sampled_from([0, 10, 300, 700]), TAGS, NODES),
    min_size=1,
    max_size=5,
)


class TopicMachine(EngineMachine):
    """Everything that can be done to logs and to the routers between them."""

    model: NaiveWorld

    def __init__(self) -> None:
        super().__init__()
        self.model = NaiveWorld()
        self.made = 0

    def make_settings(self, segment_bytes: int) -> Settings:
        return Settings(
            segment_bytes=segment_bytes,
            spare_segments=1,
            reboot_ms_max=1 << 50,
            trim_step_bytes=512,
            router_hops_max=HOPS_MAX,
            router_step_records=STEP_RECORDS,
            client_marks_max=CLIENT_MARKS_MAX,
        )

    @rule(ms=st.sampled_from([2_000, 10_000, 30_000, MARK_KEPT_MS + 1, MARKS_IDLE_MS, MARKS_IDLE_MS + 2_000]))
    def advance(self, ms: int) -> None:
        self.let_pass(ms)

    # Topics

    @rule(name=NAMES, config=CONFIGS)
    def configure(self, name: str, config: dict[str, Any]) -> None:
        with self.step() as now:
            config = self.complete(name, config)
            _, created = run.put_topic(self.engine, name, config).reply
            assert created == (name not in self.model.topics)
            self.model.retired.discard(name)
            topic = self.model.topics.setdefault(name, Naive())
            topic.config = config
            topic.evict_old(now)
            topic.evict_over_cap()

    @rule(name=NAMES, config=CONFIGS, fields=st.sets(st.sampled_from(["cap_records", "discard", "auto_create"])))
    def reconfigure(self, name: str, config: dict[str, Any], fields: set[str]) -> None:
        given = {field: config[field] for field in sorted(fields)}
        topic = self.model.topics.get(name)
        with self.step() as now:
            if topic is None:
                self.refused(NotFound, "topic_not_found", run.patch_topic, name, given)
                return
            assert given.items() <= asdict(run.patch_topic(self.engine, name, given).reply.config).items()
            topic.config = {**topic.config, **given}
            topic.evict_old(now)
            topic.evict_over_cap()

    def complete(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "ttl_ms": TTL_MS} if name == "t" else config

    @rule(name=NAMES, if_empty=st.booleans())
    def delete_topic(self, name: str, if_empty: bool) -> None:
        with self.step() as now:
            topic = self.model.topics.get(name)
            if topic is None:
                assert run.delete_topic(self.engine, name, if_empty=if_empty).reply == (False, [])
                return
            if_empty = if_empty or topic.head < 8  # seldom: it is the end of everything there
            if if_empty:
                topic.evict_old(now)
            if if_empty and topic.records:
                self.refused(Conflict, "topic_not_empty", run.delete_topic, name, if_empty=True)
                return
            reply = run.delete_topic(self.engine, name, if_empty=if_empty).reply
            assert reply == (True, self.model.delete_topic(name))

    def refused(self, error: type[Exception], code: str, command: Any, *args: Any, **options: Any) -> None:
        with pytest.raises(error) as caught:
            command(self.engine, *args, **options)
        assert caught.value.code == code  # type: ignore[attr-defined]

    # Appending

    @rule(
        name=NAMES,
        wanted=RECORDS,
        node=NODES,
        config=CONFIGS,
        key=st.sampled_from([None, None, "k1", "k2"]),
        client=st.sampled_from([None, None, None, ("c1", 0), ("c1", 1), ("c2", 1), ("c2", -1), ("c3", 1)]),
        again=st.booleans(),
    )
    def produce(
        self,
        name: str,
        wanted: list[tuple[int, str | None, str | None]],
        node: str | None,
        config: dict[str, Any],
        key: str | None,
        client: tuple[str, int] | None,
        again: bool,
    ) -> None:
        """``client`` is a name and how far above its mark to go; ``again`` repeats a call that was named."""
        with self.step() as now:
            made, packed = self.make(wanted, node)
            topic = self.model.topics.get(name)
            options: dict[str, Any] = {"node": node, "idempotency_key": key, "config": self.complete(name, config)}
            if client is not None:
                last = topic.marks[client[0]][0] if topic is not None and client[0] in topic.marks else 5
                options |= {"client_id": client[0], "client_seq": last + client[1]}
            self.append(name, topic, made, options, now=now, payload=packed.blobs + packed.ends)
            if again and (key is not None or client is not None):
                self.append(
                    name, self.model.topics.get(name), made, options, now=now, payload=packed.blobs + packed.ends
                )

    def make(self, wanted: list[tuple[int, str | None, str | None]], node: str | None) -> tuple[list[Record], Any]:
        made: list[Record] = []
        for pad, tag, own in wanted:
            self.made += 1
            made.append(Record(data=b'"%d%s"' % (self.made, b"." * pad), tag=tag, node=own))
        return made, pack([Record(data=r.data, tag=r.tag, node=r.node or node) for r in made])

    def append(
        self, name: str, topic: Naive | None, made: list[Record], options: dict[str, Any], *, now: int, payload: bytes
    ) -> None:
        node, key, client = options["node"], options["idempotency_key"], options.get("client_id")
        kept = self.keep_records(made, node, now)
        if topic is not None:
            known = topic.keys.get(key) if key is not None else None
            if known is not None and known[0] >= now:
                self.append_again(name, made, options, known, payload)
                return
            mark = topic.marks.get(client) if client is not None else None
            if mark is not None and options["client_seq"] <= mark[0] and mark[3] >= now - MARKS_IDLE_MS:
                self.refused(Conflict, "idempotency_conflict", run.produce, name, made, **options)
                return
            if client is not None and not topic.has_room_for(client, now, marks_max=CLIENT_MARKS_MAX):
                self.refused(Overloaded, "throttled", run.produce, name, made, **options)
                return
            if topic.config.get("discard") == "reject":
                topic.evict_old(now)
        elif name in self.model.retired or not options["config"]["auto_create"]:
            self.refused(NotFound, "topic_not_found", run.produce, name, made, **options)
            return
        target = topic or Naive(options["config"])
        if target.is_full_for(kept):
            self.refused(Overloaded, "topic_full", run.produce, name, made, **options)
            return
        reply = run.produce(self.engine, name, made, **options).reply
        assert (reply.created, reply.deduped) == (topic is None, False)
        assert list(reply.seqs) == [target.head + 1 + i for i in range(len(kept))]
        self.model.topics[name] = target
        for record in kept:
            target.append(record)
        seqs = reply.first_seq, reply.last_seq
        if key is not None:
            window_ms = target.config.get("idempotency_window_ms", 120_000)
            target.keys[key] = (now + window_ms, seqs[0], len(kept), payload)
        if client is not None:
            target.mark(client, (options["client_seq"], *seqs, now), marks_max=CLIENT_MARKS_MAX)
        target.evict_old(now)
        target.evict_over_cap()

    def append_again(
        self, name: str, made: list[Record], options: dict[str, Any], known: tuple[int, int, int, bytes], payload: bytes
    ) -> None:
        if known[3] != payload:
            self.refused(Conflict, "idempotency_conflict", run.produce, name, made, **options)
            return
        reply = run.produce(self.engine, name, made, **options).reply
        assert (reply.first_seq, reply.count, reply.deduped) == (known[1], known[2], True)

    def keep_records(self, made: list[Record], node: str | None, now: int, *, hops: bool = False) -> list[Kept]:
        full = [Record(data=r.data, tag=r.tag, node=r.node or node, hops=r.hops) for r in made]
        packed = pack(full)
        ends = [0, *ends_of(packed.ends, len(packed.blobs))]
        ts = now + self.engine.state.wall_offset_ms
        return [Kept(0, now, ts, r.data, r.tag, r.node, r.hops, ends[i + 1] - ends[i]) for i, r in enumerate(full)]

    # Deleting and reading

    @rule(
        name=NAMES,
        before=st.none() | st.integers(1, 30),
        match=st.sampled_from([None, "x", ["tag", "Eq", "z"], ["tag", "Glob", "x*"], ["tag", "Glob", "*"]]),
        seqs=st.none() | st.lists(st.integers(1, 30), min_size=1, max_size=8),
    )
    def delete(self, name: str, before: int | None, match: Any, seqs: list[int] | None) -> None:
        topic = self.model.topics.get(name)
        if topic is None or (before is None and match is None and seqs is None):
            return
        with self.step():
            gone = [
                seq
                for seq, record in topic.records.items()
                if (before is None or seq < before)
                and (seqs is None or seq in seqs)
                and (match is None or matches(match, record.tag))
            ]
            reply = run.delete_records(self.engine, name, before_seq=before, match=match, seqs=seqs).reply
            for seq in gone:
                del topic.records[seq]
            assert (reply.deleted, reply.count, reply.bytes) == (len(gone), len(topic.records), topic.bytes)
            assert (reply.earliest_seq, reply.head_seq) == (topic.earliest, topic.head)

    @rule(
        name=NAMES,
        from_seq=st.integers(0, 25),
        limit=st.integers(1, 6),
        node=st.sampled_from([None, "n1", ["n1", "n2"], []]),
    )
    def diff(self, name: str, from_seq: int, limit: int, node: Any) -> None:
        topic = self.model.topics.get(name)
        if topic is None:
            return
        with self.step() as now:
            reply = run.diff(self.engine, name, from_seq=from_seq, limit=limit, node=node)
            topic.evict_old(now)
            reason = topic.tombstone(from_seq)
            assert (reply.tombstone.reason if reply.tombstone is not None else None) == reason
            nodes = {node} if isinstance(node, str) else set(node or [])
            found = topic.after(0 if from_seq > topic.head else from_seq, nodes)
            assert [r.seq for r in reply.records] == [r.seq for r in found[:limit]]
            reached = found[limit].seq - 1 if len(found) > limit else topic.head
            assert (reply.next_from_seq, reply.head_seq) == (reached, topic.head)
            assert reply.earliest_seq == topic.earliest
            if reply.tombstone is not None and reason in ("cap", "ttl", "mixed"):
                assert (reply.tombstone.gap_from, reply.tombstone.gap_to) == (from_seq + 1, topic.evict_floor - 1)

    @rule(name=NAMES)
    def look(self, name: str) -> None:
        topic = self.model.topics.get(name)
        if topic is None:
            return
        with self.step() as now:
            info = run.topic_info(self.engine, name)
            topic.evict_old(now)
            assert (info.head_seq, info.earliest_seq, info.next_seq) == (topic.head, topic.earliest, topic.head + 1)
            assert (info.count, info.bytes) == (len(topic.records), topic.bytes)
            assert run.list_topics(self.engine).items == sorted(self.model.topics)

    # Routers

    @rule(
        name=st.sampled_from(["r1", "r2", "r3"]),
        source=NAMES,
        dest=st.sampled_from(["a", "b", "c"]),
        preserve_node=st.booleans(),
        preserve_tag=st.booleans(),
        create_dest=st.booleans(),
        filter=st.sampled_from([None, None, "x", "x*"]),
        allow_cycle=st.booleans(),
    )
    def put_router(self, name: str, source: str, dest: str, filter: str | None, **flags: Any) -> None:
        if source == dest:
            return
        rule_of = ["tag", "Glob", filter] if filter is not None and filter.endswith("*") else filter
        options: dict[str, Any] = {"source": source, "dest": dest, "filter": rule_of, **flags}
        with self.step():
            if not flags["allow_cycle"] and self.model.closes_a_cycle(name, source, dest):
                self.refused(Conflict, "router_cycle", run.put_router, name, **options)
                return
            if dest not in self.model.topics and (not flags["create_dest"] or dest in self.model.retired):
                self.refused(NotFound, "topic_not_found", run.put_router, name, **options)
                return
            known = self.model.routers.get(name)
            _, created = run.put_router(self.engine, name, **options).reply
            assert created == (known is None)
            head = self.model.topics[source].head if source in self.model.topics else 0
            cursor = known.cursor if known is not None and known.source == source else head
            router = NaiveRouter(source=source, dest=dest, filter=filter, cursor=cursor, **flags)
            if known is not None:
                router.forwarded, router.missed = known.forwarded, known.missed
            self.model.routers[name] = router

    @precondition(lambda self: self.model.routers)
    @rule(name=st.sampled_from(["r1", "r2", "r3"]))
    def delete_router(self, name: str) -> None:
        with self.step():
            assert run.delete_router(self.engine, name).reply == (self.model.routers.pop(name, None) is not None)

    @precondition(lambda self: self.model.routers)
    @rule(rounds=st.integers(1, 6))
    def forward(self, rounds: int) -> None:
        """Let every source be copied from, a step for each of its routers, some times over."""
        with self.step() as now:
            for _ in range(rounds):
                for name in sorted(self.engine.state.topics):
                    run.forward(self.engine, self.engine.state.topics[name])
                    for key in sorted(self.model.routers):
                        router = self.model.routers[key]
                        if router.source == name:
                            self.forward_step(router, now)

    def forward_step(self, router: NaiveRouter, now: int) -> None:
        source, dest = self.model.topics[router.source], self.model.topics.get(router.dest)
        lo, hi = router.cursor + 1, min(router.cursor + STEP_RECORDS, source.head)
        if hi < lo:
            return
        taken = [r for seq, r in sorted(source.records.items()) if lo <= seq <= hi and router.takes(r)]
        copies = [
            Record(
                data=r.data,
                tag=r.tag if router.preserve_tag else None,
                node=r.node if router.preserve_node else None,
                hops=r.hops + 1,
            )
            for r in taken
        ]
        kept = self.keep_records(copies, None, now) if copies else []
        room = len(kept) if dest is None else dest.room_for(kept)
        too_large = int(room < len(kept) and not room and dest is not None and not dest.records)
        if room < len(kept):
            hi = taken[room].seq - 1 + too_large
            stuck = not room and not too_large
            kept, copies = kept[:room], copies[:room]
            if stuck:
                return
        missed = too_large + max(0, min(hi + 1, source.evict_floor) - lo)
        if copies or missed:
            if dest is None and (not router.create_dest or router.dest in self.model.retired):
                return
            dest = self.model.topics.setdefault(router.dest, Naive())
            if missed:
                dest.head += 1
                dest.trim_seq, dest.trim_missed = dest.head, missed
            for record in kept:
                dest.append(record)
            if copies:
                dest.evict_over_cap()
        router.cursor = hi
        router.forwarded += len(copies)
        router.missed += missed

    # What must always hold

    def check(self, state: State) -> None:
        assert state.retired == self.model.retired
        assert sorted(state.topics) == sorted(self.model.topics)
        for name, naive in self.model.topics.items():
            self.check_topic(state, name, naive)
        routers = {
            name: (r.source, r.dest, r.cursor, r.forwarded, r.missed) for name, r in sorted(state.routers.items())
        }
        assert routers == {
            name: (r.source, r.dest, r.cursor, r.forwarded, r.missed) for name, r in sorted(self.model.routers.items())
        }

    def check_topic(self, state: State, name: str, naive: Naive) -> None:
        topic = state.topics[name]
        live = list(each(topic.live_runs(1, topic.head_seq + 1)))
        assert (topic.head_seq, topic.floor, live) == (naive.head, naive.earliest, sorted(naive.records)), f"{naive}"
        assert topic.bytes == naive.bytes
        floors = (topic.cap_floor, topic.ttl_floor, topic.trim_seq, topic.trim_missed)
        assert floors == (naive.cap_floor, naive.ttl_floor, naive.trim_seq, naive.trim_missed)
        records = self.engine.reader.records(topic, topic.live_runs(1, topic.head_seq + 1))
        read = [(r.seq, r.ts, r.data, r.tag, r.node, r.hops) for r in records]
        assert read == [(r.seq, r.ts, r.data, r.tag, r.node, r.hops) for _, r in sorted(naive.records.items())]
        for tag in ("x", "xy", "z"):
            parts = topic.tags.parts(Match(exact=tag), below=1 << 63, looks_max=5) if topic.tags is not None else []
            tagged = [seq for part in parts for seq in part]
            assert tagged == sorted(seq for seq, r in naive.records.items() if r.tag == tag)
        for key, (last_ms, first_seq, count, _) in naive.keys.items():
            entry = topic.keys.get(digest_key(key), self.ticked) if topic.keys is not None else None
            known = (entry.first_seq, entry.count) if entry is not None else None
            assert known == ((first_seq, count) if last_ms >= self.ticked else None)
        assert len(naive.marks) == (len(topic.marks) if topic.marks is not None else 0)
        for client, mark in naive.marks.items():
            found = topic.marks.get(client) if topic.marks is not None else None
            assert found is not None
            assert (found.last_client_seq, found.first_seq, found.last_seq, found.at_ms) == mark


def matches(match: Any, tag: str | None) -> bool:
    if tag is None:
        return False
    if isinstance(match, str):
        return tag == match
    return tag == match[2] if match[1] == "Eq" else tag.startswith(match[2][:-1])


TestTopics = pytest.mark.timeout(3_600)(TopicMachine.TestCase)  # to find a smallest example takes minutes
TestTopics.settings = settings(stateful_step_count=60)
