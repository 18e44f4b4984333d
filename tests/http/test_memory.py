"""Memory that was taken for a flood goes back to the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenure.http.memory import free_bytes

# In a process of its own: what other tests left on the heap would count, and a threshold once set stays.
_FLOOD = """
import asyncio, re, sys
from pathlib import Path
from tenure.http.memory import MemoryKeeper, free_bytes

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

async def main():
    before = resident()
    keeper = MemoryKeeper(look_ms=10, spare_bytes_max=int(sys.argv[1]))
    keeper.start()
    flood = [bytes(5_000) for _ in range(40_000)]
    above = resident() - before
    pinned = flood[::400]  # some stay, all over the heap, so that its end is never free
    del flood
    kept = free_bytes()
    for _ in range(300):
        if int(sys.argv[1]) and resident() - before < above // 4:
            break
        await asyncio.sleep(0.01)
    keeper.stop()
    print(kept, (resident() - before) / above, len(pinned))

asyncio.run(main())
"""


def flood(spare_bytes_max: int) -> tuple[int, float]:
    """How much was free after a flood, and which part of it the process still holds."""
    command = [sys.executable, "-c", _FLOOD, str(spare_bytes_max)]
    kept, part, _ = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(kept), float(part)


@pytest.mark.skipif(not free_bytes(), reason="the C library of this machine does not say what it keeps")
def test_what_a_flood_took_is_given_back_unless_it_shall_be_kept():
    kept, part = flood(1 << 20)
    assert kept > 100 << 20
    assert part < 0.25
    assert flood(0)[1] > 0.75
