"""Which servers this process may reach: all of them, until a test says otherwise.

The clients and the timers ask before they send, whatever address they were made with. `tenure.testing.plugin` sets the
guard, so that a test that forgot to replace the address of production fails and sends nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["check_server", "guarded"]

_guards: list[Callable[[str], None]] = []


def check_server(url: str) -> None:
    """Raise what a guard raises for this address; without a guard, return."""
    for guard in _guards:
        guard(url)


@contextmanager
def guarded(guard: Callable[[str], None]) -> Iterator[None]:
    """Ask ``guard`` before anything is sent, in every thread, for as long as the block runs."""
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)
