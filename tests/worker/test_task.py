"""A decorated function is called as before, and puts jobs for others to run: now, later, once, many, with or without
a loop.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from tenure.errors import Invalid
from tenure.worker.app import App
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware, Put, PutNext
from tests.worker.lines import lines
from tests.worker.one_task import fresh_app


class Email(msgspec.Struct):
    to: str


def emails(app: App):
    @app.task("emails", retries=5)
    async def send(job: Email, ctx: Context) -> str:
        """Send one mail."""
        return job.to

    return send


async def test_calling_a_task_calls_the_function():
    send = emails(fresh_app())
    assert await send(Email("me"), None) == "me"
    assert (send.__name__, send.__doc__, send.queue) == ("send", "Send one mail.", "emails")
    assert "send" in repr(send)


async def test_the_first_put_creates_the_queue_as_declared():
    app = fresh_app()
    async with lines(app) as line:
        assert await emails(app).put(Email("me")) == 1
        config = line.config("emails")
        assert (config.type, config.durability, config.max_deliveries, config.dead_letter) == (
            *("queue", "fsync", 7, "emails.dead"),
        )
        assert await line.claimed("emails") == [b'{"to":"me"}']


async def test_puts_that_run_at_once_keep_their_order_and_get_a_seq_each():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        await send.put(Email("first"))
        seqs = await asyncio.gather(*(send.put(Email(str(n))) for n in range(50)))
        assert list(seqs) == list(range(2, 52))
        assert (await line.claimed("emails"))[1:3] == [b'{"to":"0"}', b'{"to":"1"}']


async def test_a_queue_that_was_deleted_is_declared_again_by_the_next_put():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        await send.put(Email("a"))
        await line.client.delete_topic("emails")
        assert await send.put(Email("b")) == 1
        assert line.config("emails").dead_letter == "emails.dead"


@pytest.mark.parametrize("first", [True, False])
async def test_a_put_carries_its_tag_and_meta(first: bool):
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        if not first:
            await send.put(Email("before"))
        await send.put(Email("me"), tag="welcome", meta={"from": "signup"})
        job = (await line.client.claim("emails", max_count=2)).jobs[-1]
        assert (job.tag, msgspec.json.decode(job.meta or b"null")) == ("welcome", {"from": "signup"})


async def test_a_delayed_job_is_not_claimable_before_its_time():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        await send.put(Email("later"), delay="10m")
        at = datetime.fromtimestamp(line.clock.wall_ms() / 1000, UTC) + timedelta(minutes=20)
        await send.put(Email("much later"), at=at)
        assert await line.claimed("emails") == []
        line.clock.advance(600_000)
        assert await line.claimed("emails") == [b'{"to":"later"}']
        line.clock.advance(600_000)
        assert await line.claimed("emails") == [b'{"to":"much later"}']


async def test_a_unique_job_is_put_once_while_it_lives():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        seqs = [await send.put(Email("me"), unique="welcome-42") for _ in range(3)]
        assert seqs == [1, 1, 1]
        claimed = await line.client.claim("emails")
        await line.client.ack("emails", lease_id=claimed.lease_id)
        assert await send.put(Email("me"), unique="welcome-42") == 2


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_put_with_the_same_idempotency_key_is_answered_with_the_same_seqs(blocking: bool):
    app = fresh_app()
    send = emails(app)

    async def put(*names: str, key: str) -> list[int]:
        jobs = [Email(name) for name in names]
        if blocking:
            return await asyncio.to_thread(send.blocking.put_many, jobs, idempotency_key=key)
        return (
            await send.put_many(jobs, idempotency_key=key)
            if names[1:]
            else [await send.put(jobs[0], idempotency_key=key)]
        )

    async with lines(app) as line:
        assert await put("a", key="k1") == await put("a", key="k1") == [1]
        assert await put("b", "c", key="k2") == await put("b", "c", key="k2") == [2, 3]
        assert len(await line.claimed("emails")) == 3


async def test_none_for_an_option_is_as_if_it_were_not_given():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        await send.put(Email("me"), delay=None, at=None, tag=None, meta=None, unique=None, idempotency_key=None)
        await send.put_many([Email("you")], delay=None, at=None)
        assert len(await line.claimed("emails")) == 2


class Parcel(msgspec.Struct):
    email: Email
    weights: list[int] = []


@pytest.mark.parametrize(
    ("payload", "field", "said"),
    [
        (Parcel(Email(3)), "email.to", "Expected `str`, got `int`"),  # type: ignore[arg-type]
        (Parcel(Email("a"), [1, "2"]), "weights[1]", "Expected `int`, got `str`"),  # type: ignore[list-item]
        ({"email": {}}, "email.to", "missing required field `to`"),
        ({}, "email", "missing required field `email`"),
        (None, None, "Expected `object`, got `null`"),
    ],
)
async def test_a_payload_that_the_handler_would_not_take_is_refused_where_it_is_put(
    payload: Any, field: str | None, said: str
):
    app = fresh_app()

    @app.task("parcels")
    async def ship(job: Parcel) -> None: ...

    async with lines(app) as line:
        with pytest.raises(Invalid, match=said) as refused:
            await ship.put(payload)
        assert refused.value.detail.get("field") == field
        with pytest.raises(Invalid) as refused:
            await ship.put_many([Parcel(Email("fine")), payload])
        assert refused.value.detail["item"] == 1
        with pytest.raises(Invalid):
            await asyncio.to_thread(ship.blocking.put, payload)
        assert list(line.broker.topics().items) == [], "nothing was sent"


class Model(pydantic.BaseModel):
    to: str
    ages: list[int] = []


async def test_a_pydantic_payload_is_refused_by_the_name_of_its_field():
    app = fresh_app()

    @app.task("models")
    async def take(job: Model) -> None: ...

    async with lines(app) as line:
        assert await take.put(Model(to="ada", ages=[3])) == 1
        for payload in ({"to": "ada", "ages": [1, "x"]}, Model.model_construct(to="ada", ages=[1, "x"])):
            with pytest.raises(Invalid, match=r"ages\.1: Input should be a valid integer") as refused:
                await take.put(payload)  # type: ignore[arg-type]
            assert refused.value.detail["field"] == "ages.1"
        assert len(await line.claimed("models")) == 1


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ({"countdown": 600}, r'countdown \(delay="10m"\)'),
        ({"eta": 1}, r"eta \(at=datetime"),
        ({"kwargs": {}}, "one payload"),
        ({"dela": "1s"}, r"did you mean delay=\?"),
        ({"zzz": 1}, "unknown option of a put: zzz$"),
    ],
)
async def test_an_option_of_another_queue_is_refused_with_its_name_here(how: dict[str, Any], hint: str):
    with pytest.raises(Invalid, match=hint):
        await emails(fresh_app()).put(Email("me"), **how)


async def test_what_other_queues_call_a_put_is_refused_with_a_hint():
    send: Any = emails(fresh_app())
    for name in ("delay", "apply_async"):
        with pytest.raises(AttributeError, match=r"here it is put\(payload"):
            getattr(send, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = send.nothing
    assert not hasattr(send, "delay")
    with pytest.raises(TypeError, match="one payload and got 2"):
        await send.put("me", "you")
    with pytest.raises(TypeError, match="one payload and got 2"):
        send.blocking.put("me", "you")


async def test_many_jobs_are_put_in_one_append():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        assert await send.put_many((Email(str(n)) for n in range(3)), tag="batch") == [1, 2, 3]
        assert await send.put_many([]) == []
        assert len(await line.claimed("emails")) == 3


async def test_threads_put_through_a_blocking_client():
    app = fresh_app()
    send = emails(app)
    async with lines(app) as line:
        assert await asyncio.to_thread(send.blocking.put, Email("a"), tag="x") == 1
        assert await asyncio.to_thread(send.blocking.put_many, [Email("b"), Email("c")]) == [2, 3]
        assert await asyncio.to_thread(send.blocking.put_many, []) == []
        assert len(await line.claimed("emails")) == 3
        assert line.config("emails").durability == "fsync"


async def test_a_blocking_put_on_the_loop_is_refused_because_it_would_stop_it():
    with pytest.raises(Invalid, match=r"await task\.put"):
        emails(fresh_app()).blocking.put(Email("a"))


async def test_a_task_without_a_payload_is_put_without_one():
    app = fresh_app()

    @app.task("sweep")
    async def sweep() -> None: ...

    async with lines(app) as line:
        await sweep.put()
        await asyncio.to_thread(sweep.blocking.put)
        assert await line.claimed("sweep") == [b"null", b"null"]


@pytest.mark.parametrize(
    "how",
    [
        {"delay": "soon"},
        {"delay": -1},
        {"at": datetime(2026, 1, 1)},
        {"delay": "1s", "at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"priority": 3},
    ],
)
async def test_a_put_that_cannot_be_meant_is_refused_before_anything_is_sent(how: dict[str, Any]):
    with pytest.raises(Invalid):
        await emails(fresh_app()).put(Email("me"), **how)


async def test_what_cannot_be_written_is_refused_by_its_name():
    send = emails(fresh_app())
    with pytest.raises(Invalid, match="put one at a time"):
        await send.put_many([Email("a")], unique="x")
    async with lines(send.app):
        with pytest.raises(Invalid, match="meta cannot be written as JSON"):
            await send.put(Email("a"), meta={"a": object()})


class Stamping(Middleware):
    """Writes its name into what is put."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def put(self, put: Put, call_next: PutNext) -> list[int]:
        for record in put.records:
            meta = record.meta or {}
            record.meta = {**meta, "by": [*meta.get("by", []), self.name]}
        return await call_next(put)


@pytest.mark.parametrize("blocking", [True, False])
async def test_put_hooks_run_from_the_outermost_to_the_innermost_with_and_without_a_loop(blocking: bool):
    app = fresh_app(Stamping("outer"), Stamping("inner"))
    send = emails(app)
    async with lines(app) as line:
        if blocking:
            await asyncio.to_thread(send.blocking.put, Email("me"))
        else:
            await send.put(Email("me"))
        job = (await line.client.claim("emails")).jobs[0]
        assert msgspec.json.decode(job.meta or b"null") == {"by": ["outer", "inner"]}


async def test_a_put_hook_that_waits_is_refused_without_a_loop():
    class Waiting(Middleware):
        async def put(self, put: Put, call_next: PutNext) -> list[int]:
            await asyncio.sleep(0)
            return await call_next(put)

    app = fresh_app(Waiting())
    send = emails(app)
    async with lines(app):
        assert await send.put(Email("me")) == 1
        with pytest.raises(Invalid, match="put hook waited"):
            await asyncio.to_thread(send.blocking.put, Email("me"))
