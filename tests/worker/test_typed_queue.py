"""Several tasks share a queue by the types of its jobs; what they ask of the queue is asked once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure import Record
from tenure.errors import Invalid
from tenure.testing import AppTester
from tenure.worker.app import App
from tenure.worker.context import Context
from tenure.worker.periodic import Tick
from tenure.worker.typed_queue import TYPES_MAX, TypedQueue, type_of
from tenure.worker.verdict import AckPolicy
from tests.worker.one_task import fresh_app


class Welcome(msgspec.Struct):
    to: str


class Goodbye(msgspec.Struct):
    to: str
    days: int


def mail(app: App, ran: list[object], **knobs: Any):
    @app.task("mail", type="welcome", **knobs)
    async def welcome(job: Welcome, ctx: Context) -> None:
        ran.append((job, ctx.meta))

    @app.task("mail", type="goodbye")
    def goodbye(job: Goodbye) -> None:
        ran.append(job)

    return welcome, goodbye


async def test_each_job_goes_to_the_task_of_its_type():
    app, ran = fresh_app(), list[object]()
    welcome, goodbye = mail(app, ran)
    async with AppTester(app) as tester:
        await welcome.put(Welcome("ada"), meta={"from": "signup"})
        await goodbye.put_many([Goodbye("bob", 3)])
        await tester.client.produce("mail", [record_of({"to": "cleo"}, type="welcome")])
        await tester.run_until_idle()
        assert await tester.jobs("mail") == []
    assert sorted(map(str, ran)) == sorted(
        map(
            str,
            [
                (Welcome("ada"), {"from": "signup", "type": "welcome"}),
                Goodbye("bob", 3),
                (Welcome("cleo"), {"type": "welcome"}),
            ],
        )
    )


def record_of(data: object, **meta: object) -> Any:
    return Record(data=msgspec.json.encode(data), meta=msgspec.json.encode(meta))


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"type": "invoice"}, "no task handles the type 'invoice'; mail has tasks for 'goodbye', 'welcome'"),
        ({"type": 5}, "no task handles the type 5; mail has"),
        ({"type": ["welcome"]}, "no task handles the type a value of type list"),
        ({}, "the job carries no type; mail has tasks for 'goodbye', 'welcome'"),
    ],
)
async def test_a_job_of_an_unknown_type_is_given_back_and_becomes_a_dead_letter_that_says_why(
    meta: dict[str, object], reason: str
):
    app, ran = fresh_app(), list[object]()
    mail(app, ran, retries=2, policy=AckPolicy.ACK_FIRST)
    async with AppTester(app) as tester:
        await tester.client.produce("mail", [record_of({"to": "ada"}, **meta)])
        await tester.run_until_idle()
        [waiting] = await tester.jobs("mail")
        assert (waiting.state, waiting.deliveries) == ("delayed", 1), "a newer worker may know it"
        for _ in range(3):
            tester.advance("1h")
            await tester.run_until_idle()
        [letter] = await tester.dead("mail")
        assert letter.reason.startswith(f"UnknownType: {reason}")
        assert letter.deliveries == 4, "the first, and the three retries of the task that is retried most"
    assert ran == []


async def test_a_task_without_a_type_takes_the_jobs_that_carry_none():
    app, ran = fresh_app(), list[object]()
    mail(app, ran)

    @app.periodic("mail", every="1h")
    async def sweep(tick: Tick) -> None:
        ran.append("tick")

    async with AppTester(app) as tester:
        await tester.client.produce("mail", [record_of({"to": "ada"}, type="none-of-these")])
        tester.advance("1h")
        await tester.run_until_idle()
        assert len(await tester.jobs("mail")) == 1, "an unknown type is not for it"
    assert "tick" in ran


def test_a_typed_queue_is_one_queue_with_tasks_by_name():
    app = fresh_app()
    welcome, goodbye = mail(app, [])
    assert dict(app.tasks) == {"mail[welcome]": welcome, "mail[goodbye]": goodbye}
    assert list(app.handlers) == ["mail"]
    assert "mail[welcome]" in repr(welcome)
    assert "'goodbye', 'welcome'" in repr(app.handlers["mail"])


def test_what_one_task_says_about_the_queue_holds_for_all():
    app = fresh_app()
    mail(app, [], lease="2m", dead_letter="graves", durability="disk", retries=9)
    for task in (*app.tasks.values(), app.handlers["mail"]):
        assert task.options.lease_ms == 120_000
        assert task.options.queue_config() == {
            "type": "queue",
            "durability": "disk",
            "lease_ms": 120_000,
            "max_deliveries": 11,
            "dead_letter": "graves",
        }
        assert task.options.concurrency == 10, "threads are the fewer"
    assert [task.options.retries for task in app.tasks.values()] == [9, 3], "how a handler runs is its own"
    assert app.handlers["mail"].options.explicit == {"lease", "dead_letter", "durability", "retries"}


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ({"lease": "1m"}, {"lease": "2m"}, "lease"),
        ({"dead_letter": None}, {"dead_letter": "graves"}, "dead_letter"),
        ({"concurrency": 5}, {"concurrency": 6}, "concurrency"),
        ({"max_in_flight": 5}, {"max_in_flight": 6}, "max_in_flight"),
        ({"rate": "5/s"}, {"rate": "6/s"}, "rate"),
        ({"prefetch": 5}, {"max_in_flight": 50}, "max_in_flight"),
    ],
)
def test_tasks_that_ask_different_things_of_one_queue_are_refused(
    one: dict[str, Any], other: dict[str, Any], field: str
):
    app = fresh_app()

    async def handle(job: int) -> None: ...

    first = app.task("mail", type="a", **one)(handle)
    before = first.options
    with pytest.raises(Invalid) as refused:
        app.task("mail", type="b", **other)(handle)
    assert refused.value.detail["field"] == field
    assert dict(app.tasks) == {"mail[a]": first}
    assert first.options == before, "nothing was changed"


def test_the_same_said_in_two_ways_is_no_contradiction():
    app = fresh_app()

    async def handle(job: int) -> None: ...

    app.task("mail", type="a", lease="1m")(handle)
    app.task("mail", type="b", lease=60_000)(handle)
    assert app.handlers["mail"].options.lease_ms == 60_000


def test_two_tasks_of_one_type_are_refused_and_without_types_the_hint_is_given():
    app = fresh_app()

    async def handle(job: int) -> None: ...

    app.task("mail", type="a")(handle)
    with pytest.raises(Invalid, match="for the type 'a' already"):
        app.task("mail", type="a")(handle)
    app.task("mail")(handle)
    with pytest.raises(Invalid, match=r'by their types: type="welcome"'):
        app.task("mail")(handle)
    with pytest.raises(Invalid, match="has a task already"):
        app.timer("mail")(handle)
    with pytest.raises(Invalid, match="type must be"):
        app.task("mail", type="")(handle)


def test_a_queue_has_a_limit_of_types():
    app = fresh_app()

    async def handle(job: int) -> None: ...

    for number in range(TYPES_MAX):
        app.task("mail", type=f"t{number}")(handle)
    with pytest.raises(Invalid, match="at most 100 types"):
        app.task("mail", type="one-more")(handle)
    queue = app.handlers["mail"]
    assert isinstance(queue, TypedQueue)
    assert repr(queue).endswith("and 90 more>")


async def test_the_type_in_meta_is_the_tasks_own():
    app = fresh_app()
    welcome, _ = mail(app, [])
    async with AppTester(app):
        with pytest.raises(Invalid, match="is the type of the job, 'welcome'"):
            await welcome.put(Welcome("ada"), meta={"type": "goodbye"})
        assert await welcome.put(Welcome("ada"), meta={"type": "welcome"}) == 1


@pytest.mark.parametrize("meta", [None, b"{}", b'{"type":null}', b"[]", b"not json"])
def test_meta_that_holds_no_type_has_none(meta: bytes | None):
    assert type_of(meta) is None
