"""The pure modules of the page, called in a page: JSON as text, figures, warnings, the fold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page

from tests.console.conftest import Console
from tests.kit.server import Running

LEASE = {"lease_id": "l", "node": "w", "since": 0, "deadline": 9, "held": 5, "seqs": [1, 2, 3, 4, 5]}


@pytest.fixture
def page(console: Console) -> Page:
    console.page.goto(console.url)
    return console.page


def run(page: Page, module: str, expression: str, argument: Any = None) -> Any:
    return page.evaluate(
        f"async (x) => {{ const m = await import('/console/{module}'); return {expression}; }}", argument
    )


def test_a_member_is_cut_out_as_the_text_it_is(page: Page):
    text = '{"a": [1, "}\\"{"], "data" : {"n": 1e400, "s": "\\\\"} , "meta":null}'
    assert run(page, "json_text.js", "m.member(x, 'data')", text) == '{"n": 1e400, "s": "\\\\"}'
    assert run(page, "json_text.js", "m.member(x, 'meta')", text) == "null"
    assert run(page, "json_text.js", "m.member(x, 'n')", text) is None
    laid_out = run(page, "json_text.js", "m.indent(x)", '{"a":[1,{}],"b":"x, y"}')
    assert laid_out == '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "x, y"\n}'


def test_figures_are_short(page: Page):
    figures = run(page, "format.js", "[0, 950, 12345, 4500000].map(m.short)")
    assert figures == ["0", "950", "12.3k", "4.5M"]
    times = run(page, "format.js", "[0.4, 340, 4200, 720000, 12000000].map(m.duration)")
    assert times == ["<1 ms", "340 ms", "4.2 s", "12 min", "3 h 20 min"]
    assert run(page, "format.js", "m.roundUp(1234)") == 1300


def test_times_of_another_day_have_a_date_and_each_has_its_whole_form(page: Page):
    times = """[[31, 14, 3, 7, 250], [30, 23, 59, 59, 999]].map(([day, ...rest]) => {
        const at = new Date(2026, 0, day, ...rest).getTime();
        return [m.clock(at, new Date(2026, 0, 31, 20).getTime()), Date.parse(m.isoTime(at)) === at, m.isoTime(at)];
    })"""
    today, before = run(page, "format.js", times)
    assert (today[:2], before[:2]) == (["14:03:07.250", True], ["2026-01-30 23:59:59", True])
    assert today[2].startswith("2026-01-31T14:03:07.250")


@pytest.mark.parametrize("zone", ["America/St_Johns", "Asia/Kolkata", "UTC"])
def test_a_whole_time_names_its_offset(make_console: Callable[..., Console], server: Running, zone: str):
    console = make_console(server.url, timezone_id=zone)
    console.page.goto(console.url)
    at = 1_769_864_587_250
    whole = datetime.fromisoformat(run(console.page, "format.js", "m.isoTime(x)", at))
    assert whole == datetime.fromtimestamp(at / 1000, tz=ZoneInfo(zone))
    assert whole.utcoffset() == whole.astimezone(ZoneInfo(zone)).utcoffset()


def test_a_seq_of_up_to_ten_digits_is_shown_whole(page: Page):
    names = run(page, "widgets/cell.js", "[7, 4321, 54321, 100000, 9999999999, 10000000000].map(m.nameOf)")
    assert names == ["#7", "#4321", "54321", "100000", "9999999999", "…000000000"]


def test_queues_are_sorted_by_any_figure_and_then_by_name(page: Page):
    queues = [
        {"topic": name, "queue": {"ready": ready, "oldest_ready_ms": age}}
        for name, ready, age in (("b", 3, 9), ("c", 0, 50), ("a", 3, 20))
    ]
    orders = run(
        page, "directory.js", "['name', 'ready', 'oldest'].map((o) => m.sorted(x, o).map((q) => q.topic))", queues
    )
    assert orders == [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]]


def test_a_short_lease_is_warned_of_with_the_value_to_set(page: Page):
    about = {
        "queue": {"ready": 0, "in_flight": 0, "parked": 0, "oldest_ready_ms": 0},
        "meters": {"acked": 100, "processing_ms_p99": 410, "worst": None},
        "config": {"lease_ms": 1_000, "max_deliveries": 0},
    }
    (warning,) = run(page, "warnings.js", "m.warnings(x)", about)
    assert warning["kind"] == "lease"
    assert "Set lease_ms to 1,300." in warning["text"]
    about["config"] = {"lease_ms": 1_300, "max_deliveries": 0}
    assert run(page, "warnings.js", "m.warnings(x)", about) == []


def test_an_oldest_job_that_gets_older_is_warned_of(page: Page):
    about = {
        "queue": {"ready": 5, "in_flight": 0, "parked": 0, "oldest_ready_ms": 18_000},
        "meters": None,
        "config": {"lease_ms": 1_000},
        "ages": list(range(11_000, 19_000, 1_000)),
    }
    (warning,) = run(page, "warnings.js", "m.warnings(x)", about)
    assert warning["kind"] == "oldest"
    assert run(page, "warnings.js", "m.warnings(x)", about | {"ages": [18_000] * 8}) == []


def test_frames_are_put_together_from_any_pieces(page: Page):
    stream = "retry: 2000\n\n: hb\n\nid: a-1\nevent: acked\ndata: {\ndata: }\n\nid: a-2\nevent: gap\ndata: {}\n\n"
    cut = "(() => { const p = new m.Parser(); return [...x].flatMap((piece) => p.take(piece)); })()"
    assert run(page, "sse.js", cut, list(stream)) == run(page, "sse.js", "new m.Parser().take(x)", stream)
    assert run(page, "sse.js", cut, [stream]) == [
        {"id": "a-1", "event": "acked", "data": "{\n}"},
        {"id": "a-2", "event": "gap", "data": "{}"},
    ]


def test_the_fold_asks_for_a_look_where_a_row_does_not_say_enough(page: Page):
    snapshot = {
        **{"topic": "q", "count": 2, "head_seq": 2, "tail": [], "leases": [], "leases_count": 0, "next_at": None},
        "config": {"retry_backoff": None, "dlq_strategy": "skip"},
        "queue": {"ready": 2, "in_flight": 0, "delayed": 0, "parked": 0, "dead_lettered": 0, "oldest_ready_ms": 0},
        "head": [{"$seq": seq, "state": "ready", "deliveries": 0} for seq in (1, 2)],
        "next": {"$seq": 1, "state": "ready", "deliveries": 0},
        "parked": [],
    }
    claimed = {
        "event": "claimed",
        "ts": 1,
        "runs": [1, 2],
        "node": "w",
        "lease_id": "l",
        "deliveries": 1,
        "deadline": 9,
    }
    after = """(() => {
        const state = m.fromSnapshot(x[0], { headMax: 10, tailMax: 2 });
        for (const row of x[1]) m.fold(state, row);
        return [state.unsure, state.counts.ready, state.counts.delayed, [...state.cells.keys()], state.nextAt];
    })()"""
    released = {"event": "released", "ts": 2, "runs": [1, 1], "node": "w", "lease_id": "l", "reason": "nack"}
    assert run(page, "fold.js", after, [snapshot, [claimed, released]]) == [False, 1, 0, [1, 2], 9]
    late = released | {"runs": [1, 2], "deliver_at": 5}
    assert run(page, "fold.js", after, [snapshot, [claimed, late]]) == [True, 0, 2, [1, 2], 5]
    many = {"event": "produced", "ts": 3, "runs": [3, 5_000]}
    assert run(page, "fold.js", after, [snapshot, [many]]) == [True, 5_002, 0, [1, 2], None]


def test_the_fold_knows_the_next_job_or_asks_for_a_look(page: Page):
    snapshot = {
        **{"topic": "q", "count": 9, "head_seq": 9, "leases": [], "leases_count": 0, "next_at": None, "parked": []},
        "config": {"retry_backoff": None, "dlq_strategy": "skip"},
        "queue": {"ready": 4, "in_flight": 5, "delayed": 0, "parked": 0, "dead_lettered": 0, "oldest_ready_ms": 0},
        "head": [{"$seq": seq, "state": "in_flight", "deliveries": 1, "lease_id": "l"} for seq in (1, 2)],
        "tail": [{"$seq": 9, "state": "ready", "deliveries": 0}],
        "next": {"$seq": 6, "state": "ready", "deliveries": 0},
    }
    after = """(() => {
        const state = m.fromSnapshot(x[0], { headMax: 2, tailMax: 1 });
        for (const row of x[1]) m.fold(state, row);
        return [m.nextJob(state)?.seq ?? null, state.unsure];
    })()"""
    claimed = {"event": "claimed", "ts": 1, "node": "w", "lease_id": "k", "deliveries": 1, "deadline": 9}
    released = {"event": "released", "ts": 2, "node": "w", "lease_id": "l", "reason": "nack", "deliveries": 1}
    for rows, expected in (
        ([], [6, False]),
        ([claimed | {"runs": [6, 1]}], [None, True]),
        ([released | {"runs": [2, 1]}], [2, False]),
        ([released | {"runs": [5, 1]}], [6, True]),
        ([{"event": "produced", "ts": 3, "runs": [10, 1]}], [6, False]),
    ):
        found = run(page, "fold.js", after, [snapshot | {"leases": [LEASE], "leases_count": 1}, rows])
        assert found == expected, rows
