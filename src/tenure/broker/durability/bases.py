"""Large bases: the state of a topic logged in parts, from a snapshot that was made beside the loop.

A base of a million jobs takes most of a second to write out. So it is marked in the log (`BaseBegun`), made from the
log up to that mark together with a checkpoint, and logged in small parts (`BasePart`) while the topic goes on: a replay
folds what happened since the mark over it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from crc32c import crc32c

from tenure.broker.engine import Engine
from tenure.core.events import BaseBegun, BasePart
from tenure.errors import Corrupt
from tenure.log.base_file import BaseFile, StoredBase

__all__ = ["begin_bases", "log_bases"]

_PART_BYTES = 1 << 17


def begin_bases(engine: Engine, topics: Iterable[int]) -> dict[int, int]:
    """Mark where the bases of these topics begin; return the segment of each mark. Raises Overloaded, Closed."""
    begun: dict[int, int] = {}
    for topic_id in topics:
        topic = engine.state.by_id.get(topic_id)
        if topic is not None:
            engine.rewrite(BaseBegun(engine.now(), topic_id, topic.name))
            begun[topic_id] = engine.log.pending_segment
    return begun


async def log_bases(
    engine: Engine,
    file: BaseFile,
    bases: Sequence[StoredBase],
    *,
    begun: dict[int, int],
    durable: Callable[[int], Awaitable[None]],
    is_over: Callable[[], bool],
) -> None:
    """Log bases in parts, one for each sync, so that no sync of a caller has more than one to write.

    A base of which not all parts are logged counts for nothing. Raises Overloaded, Closed, Indeterminate, Corrupt,
    OSError.
    """
    start = 0
    for base in bases:
        crc, offset = 0, start
        while offset < base.end and base.topic in engine.state.by_id and not is_over():
            before = engine.log.used_bytes
            data = file.read(offset, min(_PART_BYTES, base.end - offset))
            crc, is_last = crc32c(data, crc), offset + len(data) == base.end
            if not data or (is_last and crc != base.crc):
                raise Corrupt("the base of a topic does not read back as it was written", topic=base.topic)
            engine.rewrite(BasePart(engine.now(), base.topic, begun[base.topic], offset - start, data, is_last))
            batch = engine.write()
            engine.rewritten_bytes += engine.log.used_bytes - before
            offset += len(data)
            await durable(batch)
        start = base.end
