"""Nonsense for every argument of every command: what the broker's methods, and so the commands, must refuse.

`GOOD` has arguments that each method takes, `BAD` the values that each of its arguments must not take.
"""

from __future__ import annotations

from typing import Any

from tenure import Record
from tenure.contract.commands import Ack, Command, RedriveFields
from tenure.contract.records import lease_id

NAN = float("nan")
HUGE = 10**5000  # Python refuses to print it
LONE = "\ud800"  # has no UTF-8 form

NOT_TEXT: list[Any] = [5, True, 1.5, NAN, b"q", ["q"], {"q": 1}, {"q"}, object(), HUGE]
NOT_WHOLE: list[Any] = ["1", 1.0, NAN, float("inf"), True, False, -1, -HUGE, b"1", [1], {}, object()]
NOT_FLAG: list[Any] = [None, 0, 1, "true", "", [], 1.0, object()]

TOPIC = [None, *NOT_TEXT, "", " ", "a b", "é", "x" * 256, "q\n", "q\0", LONE, ".q", "-q", "../q", "q/r", "a>b"]
ROUTER = [bad for bad in TOPIC if bad != "a>b"]
NODE = [None, *NOT_TEXT, "", "x" * 129, "é" * 65, LONE, "w" + LONE]
NODES = [
    *(bad for bad in NODE if bad not in (None, ["q"], {"q"})),
    [5],
    [None],
    [["q"]],
    ["w", ""],
    ("w", LONE),
    iter("w"),
]
KEY = [*NOT_TEXT, "", "x" * 257, "é" * 129, LONE]
REASON = [*NOT_TEXT, "x" * 1025, "é" * 513, LONE]
SEQS = [
    *("12", b"12", 5, True, NAN, {1}, {1: 2}, iter([1]), object()),
    *([], (), range(0), [None], [True], ["1"], [1.0], [NAN], [-1], [2**64], [HUGE], [[1]], [1, "2"]),
    *(range(10**30), range(-5, 5), range(2**64, 2**64 + 2), list(range(10_001))),
]
LEASE_IDS = ["lease_1", 5, True, {"lease_1"}, {"lease_1": 1}, [], [5], [None], [b"lease_1"], ["a", "b"], [["a"]]]
LEASE_ID = [5, True, 1.5, b"lease_1", ["lease_1"], {}, object()]
MATCH = [
    *(5, True, 1.5, NAN, b"x", {}, {"tag": "x"}, {"x"}, object(), "x" * 257, LONE, iter(["tag", "Eq", "x"])),
    *([], ["tag"], ["tag", "Eq"], ["tag", "Eq", "x", "y"], ["node", "Eq", "x"], ["tag", "Re", "x"], ["tag", None, "x"]),
    *(["tag", "Eq", 5], ["tag", "Eq", None], ["tag", "Eq", LONE], ["tag", "Eq", ["x"]], [["tag"], "Eq", "x"]),
    *(["tag", "Glob", "x"], ["tag", "Glob", "*x"], ["tag", "Glob", "a*b*"], ["tag", "Glob", ""], ["tag", "Glob", 5]),
]
CURSOR = [*NOT_TEXT, "", "x", "dDE6", "é", LONE, "A" * 100_000]
BACKOFF: list[Any] = ["x", 5, [], True, {"min_ms": -1}, {"min_ms": 5, "max_ms": 1}]
CONFIG: list[Any] = [
    *([], "x", 5, True, [("type", "queue")], b"{}", object()),
    *({"type": bad} for bad in ("stack", None, 5, ["queue"], "Queue")),
    *({"lease_ms": bad} for bad in NOT_WHOLE),
    *({"cap_records": bad} for bad in [*NOT_WHOLE, None, 2**64, HUGE]),
    *({"durability": bad} for bad in ("", "raid", None, 5, ["fsync"])),
    *({"durable": bad} for bad in NOT_FLAG),
    *({"leases_durable": bad} for bad in NOT_FLAG),
    *({"priority": bad} for bad in ("1", 1.0, True, 1001, -1001, HUGE)),
    *({"dead_letter": bad} for bad in (5, "", "a b", LONE, ["dead"])),
    *({"dlq_strategy": bad} for bad in (None, "drop", 5)),
    *({"retry_backoff": bad} for bad in BACKOFF),
    *({"retry_backoff": {"factor": bad}} for bad in (0, NAN, float("inf"), "2", None, True, -1, HUGE)),
    *({"retry_backoff": {"jitter": bad}} for bad in NOT_FLAG),
]
META: list[Any] = [
    *("{}", {}, 5, True, ["{}"], bytearray(b"{}"), memoryview(b"{}")),
    *(
        b"",
        b" ",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"{",
        b"}",
        b"{}x",
        b"{'a':1}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":01}',
        b"{a:1}",
    ),
    *(b'{"a":NaN}', b'{"a":Infinity}', b'{"a":nul}', b'{"a":"\x01"}', b"{1:2}", b'{"a":1,}'),
    *(b"\xff", b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":"\xed\xa0\x80"}', b"\xef\xbb\xbf{}", '{"é":1}'.encode("utf-16")),
    *(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a":' * 3000 + b"1" + b"}" * 3000),
    *(b'{"a":"' + b"x" * 16_384 + b'"}', b"{" + b",".join(b'"%d":1' % key for key in range(65)) + b"}"),
]
FIELDS: dict[str, list[Any]] = {
    "data": ["x", None, 5, True, bytearray(b"x"), memoryview(b"x"), [b"x"], {}, b"x" * (1024 * 1024 + 1)],
    "tag": [*NOT_TEXT, "x" * 257, "é" * 129, LONE],
    "node": [bad for bad in NODE if bad is not None],
    "meta": META,
    "delay_ms": [*NOT_WHOLE, 2**53, HUGE],
    "deliver_at": [*NOT_WHOLE, 2**53, HUGE],
    "unique_key": KEY,
    "hops": [None, 1, -1, True, False, "x", 1.0, HUGE],
}
RECORDS = [
    *(None, b"x", "x", 5, True, {}, {b"x"}, iter([b"x"]), object(), bytearray(b"x"), []),
    *(
        [None],
        ["x"],
        [5],
        [bytearray(b"x")],
        [memoryview(b"x")],
        [[b"x"]],
        [{"data": "x"}],
        [b"x", None],
        [b""] * 10_001,
    ),
    *([b"x", Record(data=b"x", **{field: bad})] for field, bads in FIELDS.items() if field != "data" for bad in bads),
    *([Record(data=bad)] for bad in FIELDS["data"]),
    [b"x" * 1024 * 1024] * 65,
]
CLIENT_SEQ = [*NOT_WHOLE, None, 2**63, HUGE]

SETTLE: dict[str, list[Any]] = {
    "topic": TOPIC,
    "node": NODE,
    "seqs": [None, *SEQS, list(range(1001))],
    "lease_ids": LEASE_IDS,
    "lease_id": LEASE_ID,
    "strict": NOT_FLAG,
}
ISOLATION: dict[str, list[Any]] = {
    "isolate": NOT_FLAG,
    "group": [bad for bad in NODE if bad is not None],
    "suspects": [*NOT_FLAG, True],  # not without isolate
}
REACHES = [5, True, "q", ["q"], {"q"}, NAN]
SHARE = [5, True, "q", ["q"], object(), lambda name: None]
PAGE: dict[str, list[Any]] = {"limit": [None, *NOT_WHOLE], "cursor": CURSOR}

HELD_ALONE = lease_id((1 << 40) + 1)
"""The first lease of a log: the one that isolates, on the queue ``i``."""

GOOD: dict[str, dict[str, Any]] = {
    "run": {"command": Ack(topic="q", node="w", seqs=[1])},
    "produce": {"topic": "q", "records": [b"x"]},
    "diff": {"topic": "q"},
    "delete_records": {"topic": "q", "before_seq": 2},
    "claim": {"topic": "q", "node": "w"},
    "ack": {"topic": "q", "node": "w", "seqs": [1]},
    "nack": {"topic": "q", "node": "w", "seqs": [1]},
    "extend": {"topic": "q", "node": "w", "seqs": [1], "lease_ms": 1000},
    "return_jobs": {"topic": "q", "node": "w", "seqs": [1]},
    "begin": {"topic": "i", "node": "w", "seq": 1, "lease_id": HELD_ALONE},
    "end_node": {"topic": "i", "node": "w"},
    "suspects": {"topic": "q"},
    "work": {"topic": "q", "node": "w"},
    "detach": {"topic": "q", "node": "w"},
    "redrive": {"topic": "q"},
    "synced": {},
    "jobs": {"topic": "q"},
    "job": {"topic": "q", "seq": 1},
    "leases": {"topic": "q"},
    "strip": {"topic": "q"},
    "ended": {"topic": "q"},
    "meters": {"topic": "q"},
    "topic": {"topic": "q"},
    "topics": {},
    "idempotency_keys": {"topic": "q"},
    "events": {},
    "pin": {"batch": 1, "bytes_max": 1},
    "mark_time": {},
    "upgrade_status": {},
    "finalize_upgrade": {},
    "put_topic": {"topic": "q"},
    "patch_topic": {"topic": "q", "config": {}},
    "delete_topic": {"topic": "q"},
    "put_router": {"router": "r", "source": "q", "dest": "u"},
    "router": {"router": "r"},
    "routers": {},
    "delete_router": {"router": "r"},
}
"""For every command, arguments that it takes."""

NULL_WITHIN: list[Any] = [{"retry_backoff": {"factor": None}}, {"retry_backoff": {"jitter": None}}]
PATCH: list[Any] = [
    bad for bad in CONFIG if not isinstance(bad, dict) or (None not in bad.values() and bad not in NULL_WITHIN)
]
"""Null is no bad value in a patch: it returns a field to its default."""

BAD: dict[str, dict[str, list[Any]]] = {
    "run": {"command": [*NOT_TEXT, None, "ack", Command(), RedriveFields(), Ack], "bounds": SHARE},
    "produce": {
        "topic": TOPIC,
        "records": RECORDS,
        "node": [bad for bad in NODE if bad is not None],
        "idempotency_key": KEY,
        "client_id": KEY,
        "client_seq": CLIENT_SEQ,
        "create": NOT_FLAG,
        "config": CONFIG,
        "share": SHARE,
    },
    "diff": {
        "topic": TOPIC,
        "from_seq": [None, *NOT_WHOLE],
        "limit": [None, *NOT_WHOLE],
        "node": NODES,
        "wait_ms": [None, *NOT_WHOLE],
    },
    "delete_records": {"topic": TOPIC, "before_seq": NOT_WHOLE, "match": MATCH, "seqs": SEQS},
    "claim": {
        "topic": TOPIC,
        "node": NODE,
        "max_count": [None, *NOT_WHOLE],
        "lease_ms": NOT_WHOLE,
        "wait_ms": [None, *NOT_WHOLE],
        "claim_id": KEY,
        "auto_ack": NOT_FLAG,
        **ISOLATION,
    },
    "ack": SETTLE,
    "nack": {**SETTLE, "delay_ms": NOT_WHOLE, "reason": REASON, "dead": NOT_FLAG},
    "extend": {**SETTLE, "lease_ms": [None, *NOT_WHOLE]},
    "return_jobs": {**SETTLE, "delay_ms": NOT_WHOLE, "reason": REASON},
    "begin": {"topic": TOPIC, "node": NODE, "seq": [None, *NOT_WHOLE, 2**64], "lease_id": [None, *LEASE_ID]},
    "end_node": {
        "topic": TOPIC,
        "node": NODE,
        "seqs": [None, *(bad for bad in SEQS if bad not in ([], (), range(0)))],
        "exit_code": [*NOT_TEXT[1:], "1", 2**31, -(2**31)],
    },
    "suspects": {"topic": TOPIC},
    "detach": {
        "topic": [bad for bad in TOPIC if bad is not None],
        "node": [bad for bad in NODE if bad is not None],
    },
    "work": {"topic": TOPIC, "node": NODE, "max_count": [None, *NOT_WHOLE], "lease_ms": NOT_WHOLE, **ISOLATION},
    "redrive": {
        "topic": TOPIC,
        "to": [bad for bad in TOPIC if bad is not None] + ["q"],
        "match": MATCH,
        "seqs": SEQS,
        "reason_like": REASON,
        "limit": [*NOT_WHOLE, 0],
        "reset_deliveries": NOT_FLAG,
        "dry_run": NOT_FLAG,
        "reaches": REACHES,
    },
    "synced": {},
    "jobs": {"topic": TOPIC, "state": [None, *NOT_TEXT, "", "acked", "Ready", LONE], **PAGE},
    "job": {"topic": TOPIC, "seq": [None, *NOT_WHOLE]},
    "strip": {
        "topic": TOPIC,
        "head": [None, *NOT_WHOLE],
        "tail": [None, *NOT_WHOLE],
        "leases": [None, *NOT_WHOLE],
    },
    "ended": {"topic": TOPIC},
    "meters": {"topic": TOPIC},
    "leases": {"topic": TOPIC, **PAGE},
    "topic": {"topic": TOPIC, "touch": NOT_FLAG},
    "topics": {"prefix": [None, *NOT_TEXT], **PAGE},
    "idempotency_keys": {"topic": TOPIC},
    "events": {"topic": [bad for bad in TOPIC if bad is not None]},
    "pin": {"batch": NOT_WHOLE, "bytes_max": [None, *NOT_WHOLE]},
    "mark_time": {},
    "upgrade_status": {},
    "finalize_upgrade": {},
    "put_topic": {"topic": TOPIC, "config": CONFIG, "share": SHARE},
    "patch_topic": {"topic": TOPIC, "config": [None, *PATCH]},
    "delete_topic": {"topic": TOPIC, "if_empty": NOT_FLAG, "reaches": REACHES},
    "put_router": {
        "router": ROUTER,
        "source": [*TOPIC, "u"],
        "dest": [*TOPIC, "q"],
        "preserve_node": NOT_FLAG,
        "preserve_tag": NOT_FLAG,
        "create_dest": NOT_FLAG,
        "filter": MATCH,
        "allow_cycle": NOT_FLAG,
        "share": SHARE,
    },
    "router": {"router": ROUTER},
    "routers": {"prefix": [None, *NOT_TEXT], "source": NOT_TEXT, "dest": NOT_TEXT, "reaches": REACHES, **PAGE},
    "delete_router": {"router": ROUTER},
}


def arguments_for(method: str, argument: str) -> dict[str, Any]:
    """Good arguments of a method, chosen so that it looks at ``argument``."""
    good = dict(GOOD[method])
    if (method, argument) in (("produce", "config"), ("produce", "create")):
        good["topic"] = "new"  # on a topic that exists neither of them is looked at
    if (method, argument) == ("produce", "client_seq"):
        good["client_id"] = "c"
    if (method, argument) == ("produce", "client_id"):
        good["client_seq"] = 9
    if argument == "lease_id":
        good.pop("seqs", None)
    return good
