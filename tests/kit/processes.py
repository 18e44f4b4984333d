"""The children of a process, as the kernel lists them, and the end of a process with all of them."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["children_of", "kill_with_children"]


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process; none where it has ended."""
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill_with_children(process: subprocess.Popen[Any]) -> None:
    """Kill a process and its children at once, as a container ends; first it is stopped, so that it starts no more."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)
        for child in children_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    process.kill()
    process.wait()
