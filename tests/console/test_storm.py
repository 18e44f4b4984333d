"""Thousands of events while the page is open: afterwards it shows what the API says, in every figure and every cell."""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Console, Queue
from tests.console.shown import Shown, Stated, agree, differences
from tests.kit.server import Running

WORKERS = 4
ROUNDS = 40
BATCH = 10
WITHIN_S = 30
STATED: Stated = {
    "counts": {"ready": 5, "in_flight": 1},
    "head": [[1, "in_flight", "w", 2], [2, "ready", None, 0], [3, "ready", None, 0]],
    "next": [2, "ready", None, 0],
    "tail": [[8, "ready", None, 0], [9, "ready", None, 0]],
    "total": 6,
    "workers": {"w": 1},
    "letters": [2],
    "letters_count": 3,
}
SHOWN: Shown = {
    "counts": {"ready": 5, "in_flight": 1},
    "cells": [[1, "in_flight", "w", 2], [2, "ready", None, 0], [9, "ready", None, 0]],
    "hidden": 3,
    "workers": {"w": 1},
    "letters": [2],
    "more_letters": 2,
}


def asker(queue: Queue) -> Callable[[str, str, Any], Any]:
    return lambda method, path, body: queue.client.request(method, path, json=body).raise_for_status().json()


def work(server: Running, name: str, node: str, turns: itertools.count[int]) -> None:
    """Put jobs in, claim as many, settle them one by one: most acked, some nacked, some given up on, some kept."""
    with server.client() as client:
        queue = Queue(client, name)
        for _ in range(ROUNDS):
            queue.produce(*range(BATCH))
            for job in queue.claim(node, BATCH)["claimed"]:
                turn, about = next(turns), {"node": node, "seqs": [job["$seq"]]}
                if turn % 50 == 0:
                    queue.send("nack", about | {"dead": True, "reason": "no use"})
                elif turn % 20 == 0:
                    queue.send("nack", about | {"delay_ms": 600_000})
                elif turn % 7 == 0:
                    queue.send("nack", about)
                elif turn % 31:
                    queue.send("ack", about)


@pytest.mark.full
def test_after_two_thousand_events_the_page_shows_what_the_api_says(
    console: Console, make_queue: Callable[..., Queue], server: Running
):
    queue = make_queue(dead_letter=f"dead.{uuid.uuid4().hex[:8]}")
    queue.produce(*["backlog"] * 300)
    console.open(queue)
    turns = itertools.count(1)
    with ThreadPoolExecutor(WORKERS) as pool:
        for storm in [pool.submit(work, server, queue.name, f"w{number}", turns) for number in range(WORKERS)]:
            storm.result()
    _, found = agree(console.page, asker(queue), queue.name, within_s=WITHIN_S)
    assert found == []
    queue.let_pass(600_000)  # what is still held runs out, and what was delayed comes due
    _, found = agree(console.page, asker(queue), queue.name, within_s=WITHIN_S)
    assert found == []
    console.expect_counts(in_flight=0, delayed=0)


def test_dead_letters_that_somebody_else_redrives_or_deletes_leave_the_page(
    console: Console, make_queue: Callable[..., Queue], client: httpx.Client
):
    dead = Queue(client, f"dead.{uuid.uuid4().hex[:8]}")
    queue = make_queue(dead_letter=dead.name)
    queue.produce(*"abc")
    console.open(queue)
    queue.claim("w1", 3)
    queue.send("nack", {"node": "w1", "seqs": [1, 2, 3], "dead": True})
    letters = console.page.locator(".letters .cell")
    expect(letters).to_have_count(3)
    dead.send("redrive", {"seqs": [1]})
    expect(letters).to_have_count(2)
    dead.send("delete", {"before_seq": 4})
    expect(letters).to_have_count(0)


def test_a_page_that_shows_the_same_differs_in_nothing():
    assert differences(SHOWN, STATED) == []


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("counts", {"ready": 4, "in_flight": 1}),
        ("cells", [[1, "ready", None, 2], [2, "ready", None, 0], [9, "ready", None, 0]]),
        ("cells", [[1, "in_flight", "other", 2], [2, "ready", None, 0], [9, "ready", None, 0]]),
        ("cells", [[1, "in_flight", "w", 2], [3, "ready", None, 0], [9, "ready", None, 0]]),
        ("cells", [[1, "in_flight", "w", 2], [2, "ready", None, 0], [8, "ready", None, 0]]),
        ("hidden", 2),
        ("workers", {}),
        ("letters", []),
        ("more_letters", 0),
    ],
)
def test_whatever_the_page_shows_otherwise_is_named(part: str, value: Any):
    page: dict[str, Any] = dict(copy.deepcopy(SHOWN))
    page[part] = value
    assert differences(page, STATED)  # type: ignore[arg-type]
