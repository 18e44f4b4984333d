"""A producer as a process of its own: it writes entries, and prints which of them are durable.

python -m tests.buffer.crowd URL NAME COUNT
"""

from __future__ import annotations

import asyncio
import sys

from tenure.buffer import BufferSettings, Producer


async def main(url: str, name: str, count: int) -> None:
    async with Producer(url, settings=BufferSettings(flush_interval_ms=5, conflict_ms_max=100)) as producer:
        handles = []
        for number in range(count):
            entry = f"{name}:{number}"
            handles.append((entry, await producer.produce([entry.encode()])))
            if len(handles) == 50:
                await tell(handles)
        await tell(handles)


async def tell(handles: list) -> None:  # type: ignore[type-arg]
    for entry, handle in handles:
        await handle.durable()
        sys.stdout.write(f"{entry}\n")
    sys.stdout.flush()
    handles.clear()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
