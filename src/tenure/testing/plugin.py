"""The pytest plugin: fixtures for apps and for a real server, and a guard against servers that a test was not given.

pytest finds it wherever Tenure is installed. Nothing of Tenure is loaded until a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tenure.errors import Denied
from tenure.server_guard import guarded

if TYPE_CHECKING:
    from tenure.testing import AppTester, BlockingAppTester, HandlerContext, ManualClock
    from tenure.worker.app import App

__all__: list[str] = []

_MARK = "tenure_reach"
_ANY = "any"
_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _MARK,
        "Addresses of servers that tests may reach, one a line; 'any' for all. The default is none but the test's own.",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_MARK}(*urls): let this test reach these servers, or any without a URL")


class _Reach:
    """The servers that one test may reach, and those that it was refused."""

    def __init__(self, allowed: list[str]) -> None:
        self.allowed = allowed
        self.refused: list[str] = []

    def check(self, url: str) -> None:
        if _ANY in self.allowed or _place(url) in map(_place, self.allowed):
            return
        self.refused.append(url)
        raise Denied(_advice(url), code="server_not_given")


def _place(url: str) -> tuple[str, str | None, int | None]:
    """Return a server as scheme, host and port, however its URL is written."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _advice(url: str) -> str:
    return (
        f"this test would have reached {url}, which it was not given: use the fixture app_tester or tenure_server, "
        f"or let it with @pytest.mark.{_MARK}({url!r})"
    )


@pytest.fixture(autouse=True)
def _tenure_reach(request: pytest.FixtureRequest) -> Iterator[_Reach]:
    """Refuse every server that the test was not given. A refusal in a thread or a task fails the test at its end."""
    allowed = list(request.config.getini(_MARK))
    for mark in request.node.iter_markers(_MARK):
        allowed += mark.args or [_ANY]
    reach = _Reach(allowed)
    with guarded(reach.check):
        yield reach
    if reach.refused:
        pytest.fail(_advice(reach.refused[0]))


@pytest.fixture
def tenure_clock() -> ManualClock:
    """A clock that moves when the test moves it; `app_tester` runs on it."""
    from tenure.testing import ManualClock

    return ManualClock()


@pytest.fixture
def app_tester(tenure_clock: ManualClock) -> Callable[[App], AppTester]:
    """Make an `AppTester`: ``async with app_tester(app) as tester``."""
    from tenure.testing import AppTester

    return lambda app: AppTester(app, tenure_clock)


@pytest.fixture
def blocking_app_tester(tenure_clock: ManualClock) -> Callable[[App], BlockingAppTester]:
    """Make a `BlockingAppTester`: ``with blocking_app_tester(app) as tester``."""
    from tenure.testing import BlockingAppTester

    return lambda app: BlockingAppTester(app, tenure_clock)


@pytest.fixture
def handler_context() -> Callable[..., HandlerContext]:
    """Make a `Context`: ``await send(email, handler_context("emails", attempt=2))``."""
    from tenure.testing import make_context

    return make_context


@pytest.fixture
def tenure_server(tmp_path: Path, _tenure_reach: _Reach, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a real server for this test; the value is its URL, also in ``TENURE_URL`` during the test."""
    from tenure.testing import running_server

    with running_server(tmp_path / "tenure") as url:
        _tenure_reach.allowed.append(url)
        monkeypatch.setenv("TENURE_URL", url)
        monkeypatch.delenv("TENURE_KEY", raising=False)
        yield url
