"""The pure modules of the page, called in a page: JSON as text, figures, warnings, the fold."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.console.conftest import Console


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
