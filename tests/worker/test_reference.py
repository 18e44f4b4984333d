"""The reference of the worker is complete: every knob, option, policy, argument, member and hook."""

from __future__ import annotations

import inspect
from typing import Any

from tenure.durations import ms_of
from tenure.worker.app import App
from tenure.worker.backoff import Exponential
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware
from tenure.worker.options import Knobs, TaskKnobs, TaskOptions
from tenure.worker.task import PutOptions
from tenure.worker.timer import ScheduleOptions
from tenure.worker.verdict import AckPolicy
from tests.cli.test_reference import code, page, rows


def section(title: str, level: str = "##") -> list[list[str]]:
    """The rows of the tables between one heading and the next."""
    text = page("worker").partition(f"\n{level} {title}\n")[2]
    assert text, title
    return rows(text.partition(f"\n{level} ")[0].partition("\n## ")[0])


def knobs() -> dict[str, list[str]]:
    above = page("worker").partition("\n## Tasks\n")[2].partition("\n### ")[0]
    return {code(row[0])[0]: row for row in rows(above)}


def test_every_knob_is_listed_with_its_default():
    plain = TaskOptions.of("q", {}, is_async=True)
    defaults: dict[str, Any] = {name: getattr(plain, name, None) for name in TaskKnobs.__annotations__}
    listed = knobs()
    assert set(listed) == set(TaskKnobs.__annotations__)
    for name in ("retries", "weight", "push", "concurrency", "durability", "backoff", "time_limit"):
        shown = f'"{defaults[name]}"' if isinstance(defaults[name], str) else repr(defaults[name])
        assert code(listed[name][1])[0] == shown, name
    assert ms_of(code(listed["lease"][1])[0].strip('"'), field="lease") == plain.lease_ms
    assert code(listed["policy"][1])[0] == str(plain.policy)
    assert code(listed["dead_letter"][1])[0].replace("<queue>", "q") == plain.dead_letter
    assert code(listed["run"][1]) == ['"auto"']
    assert code(listed["concurrency"][1])[1] == str(TaskOptions.of("q", {}, is_async=False).concurrency)
    assert code(listed["prefetch"][1]) == ["concurrency"]
    assert plain.prefetch == plain.concurrency
    assert (listed["rate"][1], plain.rate) == ("none", None)


def test_every_option_of_a_put_is_listed():
    assert {code(row[0])[0] for row in section("Put", "###")} == PutOptions.__optional_keys__


def test_every_option_of_a_schedule_is_listed():
    listed = {code(row[0])[0] for row in section("Timers") if "|" not in row[0] and code(row[0])}
    assert listed >= ScheduleOptions.__optional_keys__


def test_what_a_timer_does_not_take_is_said():
    text = page("worker").partition("\n## Timers\n")[2]
    assert all(f"`{name}`" in text for name in set(TaskKnobs.__annotations__) - set(Knobs.__annotations__))


def test_every_policy_is_a_column():
    text = page("worker").partition("\n## Policies\n")[2]
    head = next(line for line in text.splitlines() if line.startswith("|"))
    assert code(head) == [policy.name for policy in AckPolicy]


def test_every_argument_and_member_of_an_app_is_listed():
    listed = [(code(row[0]), row) for row in section("App")]
    arguments = {names[0]: code(row[1])[0] for names, row in listed if len(row) == 3}
    signature = inspect.signature(App.__init__).parameters.values()
    assert arguments == {
        p.name: f'"{p.default}"' if isinstance(p.default, str) else repr(p.default)
        for p in signature
        if p.name != "self"
    }
    members = {name for names, row in listed if len(row) == 2 for name in names}
    assert members == public(App) | {"middlewares", "stats"}


def test_every_member_of_a_context_is_listed():
    listed = {name for row in section("Context") for name in code(row[0])}
    assert listed == public(Context) | {"job"}


def test_every_hook_is_listed():
    assert {code(row[0])[0] for row in section("Middlewares")} == public(Middleware)


def test_the_defaults_of_the_back_off_are_listed():
    (exponential, _) = section("Back-off")
    given = list(inspect.signature(Exponential.__init__).parameters.values())[1:]
    assert code(exponential[1]) == [f'"{p.default}"' if isinstance(p.default, str) else repr(p.default) for p in given]


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_") and name != "url"}
