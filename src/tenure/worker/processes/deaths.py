"""The line in the log for the death of a worker process: its exit, and the jobs that it ran."""

from __future__ import annotations

import signal
from typing import Final

from tenure.worker.processes.board import Record

__all__ = ["describe_death", "describe_exit", "shell_exit_code"]

_SHOWN_MAX: Final = 10
_SIGNALS_BASE: Final = 128


def shell_exit_code(code: int) -> int:
    """Return an exit code as shells and containers show it, where a process object has a negative one for a signal.

    >>> shell_exit_code(-9), shell_exit_code(3)
    (137, 3)
    """
    return code if code >= 0 else _SIGNALS_BASE - code


def describe_exit(code: int) -> str:
    """Describe an exit code as a process object returns it: below zero for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def describe_death(code: int, left: Record | None) -> str:
    """Describe the exit of a process, and of which job or jobs it may have died; ``left`` is what its board showed.

    >>> from tenure.worker.processes.board import Record
    >>> describe_death(-9, Record(running={"mail": [17]}))
    'was ended by SIGKILL while it ran job 17 of mail'
    >>> describe_death(3, Record(running={"mail": [17, 18], "pages": [4]}))
    'ended with exit code 3 while it ran 3 jobs, one of which may be why: 17, 18 of mail; 4 of pages'
    """
    if left is None:
        return describe_exit(code)
    count = sum(map(len, left.running.values()))
    if count == 0:
        return f"{describe_exit(code)} while it ran no job"
    if count == 1:
        ((queue, (seq,)),) = left.running.items()
        return f"{describe_exit(code)} while it ran job {seq} of {queue}"
    return f"{describe_exit(code)} while it ran {count} jobs, one of which may be why: {_some(left.running)}"


def _some(running: dict[str, list[int]]) -> str:
    """List the first few jobs by queue."""
    left, parts = _SHOWN_MAX, list[str]()
    for queue, seqs in running.items():
        if left == 0:
            parts.append("…")
            break
        shown, left = seqs[:left], max(0, left - len(seqs))
        parts.append(", ".join(map(str, shown)) + (" …" if len(shown) < len(seqs) else "") + f" of {queue}")
    return "; ".join(parts)
