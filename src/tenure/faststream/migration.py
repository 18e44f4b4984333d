"""`move`: migrate the timers of faststream-redis-timers, once."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from faststream.redis.parser import BinaryMessageFormatV1
from redis.asyncio import Redis
from redis.client import NEVER_DECODE

from tenure.errors import Invalid
from tenure.faststream.envelope import pack
from tenure.timers.timers import Timers

__all__ = ["Moved", "move"]

_PAGE: Final = 500


class Moved(msgspec.Struct, frozen=True):
    """How many timers were moved; ``refused`` maps the ids that cannot be moved, and stay, to the reason."""

    count: int
    refused: dict[str, str]


class _Old(msgspec.Struct, frozen=True):
    """The envelope of the first releases: a body in hexadecimal digits, and its content type."""

    b: str
    ct: str | None = None


_old: Final = msgspec.json.Decoder(_Old)


async def move(
    client: Redis,
    topic: str,
    *,
    timers: Timers,
    timeline_key: str = "timers_timeline",
    payloads_key: str = "timers_payloads",
) -> Moved:
    """Move a topic's timers to ``timers``, each at its time; an id that exists there already is kept.

    Run it while nothing uses the old keys. It can be run again after it stopped at any point. Raises what
    ``Timers.schedule`` and redis-py raise.
    """
    timeline, payloads = f"{timeline_key}:{topic}", f"{payloads_key}:{topic}"
    count, refused = 0, dict[str, str]()
    while ids := await _raw(client, "ZRANGE", timeline, len(refused), len(refused) + _PAGE - 1):
        dues, found = await _raw(client, "ZMSCORE", timeline, *ids), await _raw(client, "HMGET", payloads, *ids)
        done: list[bytes] = []
        for timer_id, due_s, payload in zip(ids, dues, found, strict=True):
            try:
                count += await _move_one(timers, topic, timer_id, at_ms=int(float(due_s or 0) * 1000), payload=payload)
            except (Invalid, UnicodeDecodeError) as error:
                refused[timer_id.decode(errors="backslashreplace")] = str(error)
            else:
                done.append(timer_id)
        if done:
            await client.zrem(timeline, *done)
            await client.hdel(payloads, *done)
    return Moved(count, refused)


async def _move_one(timers: Timers, topic: str, timer_id: bytes, *, at_ms: int, payload: bytes | None) -> bool:
    """Move one timer; return False where its payload is gone, so that it could never be handled."""
    if payload is None:
        return False
    body, headers = _parse(payload)
    name = timer_id.decode()
    data = pack(body, headers, timer_id=name)
    await timers.schedule(topic, data, at=max(at_ms, 0), timer_id=name, on_conflict="keep")
    return True


def _parse(payload: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the body and headers of either envelope. Raises Invalid where an old one is damaged."""
    if payload.startswith(b"{"):
        try:
            old = _old.decode(payload)
        except msgspec.MsgspecError:
            return BinaryMessageFormatV1.parse(payload)
        try:
            return bytes.fromhex(old.b), {"content-type": old.ct} if old.ct else {}
        except ValueError as error:
            raise Invalid("its envelope is that of the first releases, and its body is not hexadecimal") from error
    return BinaryMessageFormatV1.parse(payload)


async def _raw(client: Redis, *command: Any) -> list[Any]:
    """Return the answer in bytes, also from a client that decodes."""
    answer: list[Any] = await client.execute_command(*command, **{NEVER_DECODE: []})  # type: ignore[no-untyped-call]
    return answer
