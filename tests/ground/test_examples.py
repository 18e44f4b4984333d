"""The docstring of a public class shows how it is used, and the example runs: in memory, without a server."""

from __future__ import annotations

import doctest
import importlib
import inspect
from enum import Enum
from typing import Any

import msgspec
import pytest

from tests.ground.test_public_names import PUBLIC

# Handed out by another class, whose example shows them at work.
SHOWN_BY = {
    "tenure.broker.Bounds": "the bounds of a server's callers, which users have no reason to write",
    "tenure.broker.OpenAnswer": "Answer",
    "tenure.broker.Share": "a limit of the server's own, which users have no reason to write",
    "tenure.broker.Unsynced": "an account of the server's own, beside its shares",
    "tenure.buffer.Batch": "Consumer",
    "tenure.buffer.FetchHandle": "Consumer",
    "tenure.buffer.WriteHandle": "Producer",
    "tenure.buffer.blocking.BlockingWriteHandle": "Producer",
    "tenure.client.AsyncLease": "AsyncQueue",
    "tenure.client.Feed": "AsyncFeed",
    "tenure.client.HeldJob": "AsyncQueue",
    "tenure.client.Lease": "Client",
    "tenure.client.Producer": "AsyncProducer",
    "tenure.client.Queue": "Client",
    "tenure.testing.AppWire": "AsyncClient",
    "tenure.testing.HandlerContext": "Context",
    "tenure.testing.Hold": "SimStore",
    "tenure.testing.SimClient": "SimStore",
    "tenure.testing.ThreadWire": "Client",
    "tenure.faststream.ScheduledTimer": "TestTimersBroker",
    "tenure.faststream.TimerStreamMessage": "TimersBroker",
    "tenure.faststream.TimersPublisher": "TimersBroker",
    "tenure.faststream.TimersRoute": "TimersRouter",
    "tenure.faststream.TimersRoutePublisher": "TimersRouter",
    "tenure.faststream.TimersSubscriber": "TimersBroker",
    "tenure.worker.BlockingContext": "Context",
    "tenure.worker.BlockingPuts": "BlockingAppTester",
    "tenure.worker.BlockingTimers": "TimerTask",
    "tenure.worker.Handler": "Task",
    "tenure.worker.Hooks": "App",
    "tenure.worker.TaskOf": "Task",
    "tenure.worker.TimerOf": "TimerTask",
}


def is_plain(public: Any) -> bool:
    """Whether a public name is a class with behaviour: no value, error, enumeration, dict or protocol."""
    if not inspect.isclass(public) or issubclass(public, (msgspec.Struct, BaseException, tuple, dict, Enum)):
        return False
    return not getattr(public, "_is_protocol", False)


PUBLIC_CLASSES = {
    f"{module}.{name}": getattr(importlib.import_module(module), name)
    for module in PUBLIC
    for name in importlib.import_module(module).__all__
    if inspect.isclass(getattr(importlib.import_module(module), name))
}
WITH_EXAMPLE = sorted(name for name, public in PUBLIC_CLASSES.items() if ">>>" in (public.__doc__ or ""))


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_example_of_a_public_class_runs(name: str):
    [example] = doctest.DocTestFinder(recurse=False).find(PUBLIC_CLASSES[name], name, globs={})
    lines: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(example, out=lines.append)
    assert (failed, tried > 0) == (0, True), "".join(lines)


def test_every_public_class_with_behaviour_has_an_example():
    plain = {name for name, public in PUBLIC_CLASSES.items() if is_plain(public)}
    assert sorted(plain - set(WITH_EXAMPLE) - SHOWN_BY.keys()) == []


def test_what_is_shown_elsewhere_is_still_there():
    assert SHOWN_BY.keys() <= PUBLIC_CLASSES.keys()
