"""Whether a worker lives and whether it is ready, asked from the thread of its page and answered on its loop.

A loop that does not answer is not alive, whatever the process looks like from outside: a handler blocks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

__all__ = ["Health", "LoopHealth"]


class Health(Protocol):
    """What probes ask. None is a yes; a text says what is the matter."""

    def why_dead(self) -> str | None: ...

    def why_not_ready(self) -> str | None: ...


class LoopHealth:
    """Asks the loop that it is made on, and waits ``answer_ms`` for it; ``why_not_ready`` is called there."""

    def __init__(self, why_not_ready: Callable[[], str | None], *, answer_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._why_not_ready = why_not_ready
        self._answer_ms = answer_ms

    def why_dead(self) -> str | None:
        """What is the matter with the loop."""
        return self._asked(lambda: None)

    def why_not_ready(self) -> str | None:
        """What is the matter with the loop, or else with the way to the jobs."""
        return self._asked(self._why_not_ready)

    def _asked(self, question: Callable[[], str | None]) -> str | None:
        answer: Future[str | None] = Future()

        def reply() -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(question())

        try:
            self._loop.call_soon_threadsafe(reply)
            return answer.result(self._answer_ms / 1000)
        except TimeoutError:
            answer.cancel()
            return f"the event loop did not answer within {self._answer_ms} ms: a handler blocks it"
        except RuntimeError:
            return "the worker has ended"
