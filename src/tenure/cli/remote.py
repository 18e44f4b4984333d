"""Run a command against a server, and turn its errors into a line and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console

from tenure.address import parse_addresses
from tenure.cli.main import USAGE
from tenure.cli.options import Target
from tenure.cli.screen import Payload, Shown, console_for, document, refuse
from tenure.endpoint import KEY_VARIABLE
from tenure.errors import Denied, Overloaded, TenureError

if TYPE_CHECKING:
    from tenure.client.client import Client

__all__ = ["ask", "exit_code", "open_client", "plain", "report_refusal", "reword"]

_CONNECT_MS: Final = 5_000
_RETRY_FOR_MS: Final = 1_000
_BACKOFF_MAX_MS: Final = 1_000
_ATTEMPTS_MAX: Final = 1_000


def exit_code(error: TenureError | OSError) -> int:
    """Return the exit code for an error of a server or a file."""
    return USAGE if isinstance(error, OSError) else error.exit_code


@contextmanager
def open_client(target: Target, *, patient: bool = False) -> Iterator[Client]:
    """Open a client of that server. It gives up soon, as on a mistyped address; ``patient`` work retries until the
    timeout, while a server restarts. So does every command that names several servers, while they find a leader.
    """
    from tenure.client.client import Client
    from tenure.client.settings import ClientSettings

    endpoint, timeout_ms = target.endpoint(), max(1, target.timeout_ms)
    patient = patient or len(parse_addresses(endpoint.url)) > 1
    settings = ClientSettings(
        connect_ms=min(timeout_ms, _CONNECT_MS),
        answer_ms=timeout_ms,
        attempts_max=_ATTEMPTS_MAX,
        retry_for_ms=timeout_ms if patient else min(timeout_ms, _RETRY_FOR_MS),
        backoff_max_ms=_BACKOFF_MAX_MS,
    )
    with Client(endpoint.url, key=endpoint.key, settings=settings) as client:
        yield client


def ask(
    target: Target,
    find: Callable[[Client], Shown],
    show: Callable[[Console, Payload], None],
    *,
    as_json: bool,
    patient: bool = False,
) -> int:
    """Run a command against a server and print its result; returns the exit code."""
    try:
        with open_client(target, patient=patient) as client:
            payload, code = find(client)
    except (TenureError, OSError) as error:
        return report_refusal(target, error, as_json=as_json)
    if as_json:
        document(payload)
    else:
        show(console_for(), payload)
    return code


def reword(error: TenureError, message: str, **more: Any) -> TenureError:
    """Return the same error with another message."""
    again = type(error)(message, code=error.code)
    again.detail = error.detail | more
    return again


def plain(value: Any) -> Any:
    """Return a reply as plain values under the client's names, not the wire's; ``data`` and ``meta`` stay raw."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: plain(field) for name, field in fields if field is not msgspec.UNSET}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def report_refusal(target: Target, error: TenureError | OSError, *, as_json: bool) -> int:
    """Print an error, with a hint for a missing key or an unreachable server; returns the exit code."""
    if isinstance(error, Denied) and error.code == "unauthorized":
        known = f"the key in {target.key_source} is not known there"
        hint = known if target.endpoint().key else f"set {KEY_VARIABLE}, or name a --key-file"
        error = reword(error, f"{error.message} ({hint})")
    elif isinstance(error, Overloaded) and error.code == "unreachable":
        error = reword(error, f"{error.message} (start one with tenure serve, or set TENURE_URL to where it is)")
    return refuse(error, exit_code(error), as_json=as_json)
