"""The options that many commands share, under one name and with one meaning."""

from __future__ import annotations

import getpass
import inspect
import os
import socket
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from tenure.durations import ms_of
from tenure.endpoint import KEY_VARIABLE, URL_DEFAULT, URL_VARIABLE, Endpoint, endpoint_of
from tenure.errors import Invalid

__all__ = [
    "DEFAULT_TIMEOUT",
    "AsJson",
    "Directory",
    "KeepLeases",
    "KeyFile",
    "NodeName",
    "QueueName",
    "Target",
    "Timeout",
    "Url",
    "default_node",
    "duration",
    "key_in",
    "on_server",
    "set_options",
]

DEFAULT_TIMEOUT: Final = "10s"
_NODE_BYTES_MAX: Final = 128
_KEY_FILE_BYTES_MAX: Final = 4096


def duration(text: str) -> int:
    """Parse a duration of the command line into ms: ``30s``, ``5m``, ``1h30m``, ``250ms``, or a plain 0."""
    try:
        return ms_of(0 if text == "0" else text, field="a duration")
    except Invalid:
        raise typer.BadParameter(f"{text!r} is no duration: write it like 250ms, 30s, 5m or 1h30m") from None


Directory = Annotated[Path, typer.Argument(help="A data directory, as given to Broker.open.", show_default=False)]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
KeepLeases = Annotated[
    bool, typer.Option("--keep-leases", help="Leave jobs with the workers that held them, instead of releasing them.")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help=f"Where the server listens, or several with commas between them [{URL_VARIABLE}, else {URL_DEFAULT}].",
        show_default=False,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help=f"A file with the API key; else {KEY_VARIABLE} has it.", show_default=False),
]
Timeout = Annotated[
    int,
    typer.Option(
        "--timeout", parser=duration, metavar="DURATION", help="How long an answer may take before we give up."
    ),
]
NodeName = Annotated[
    str | None,
    typer.Option("--node", envvar="TENURE_NODE", help="Who holds the jobs [cli:USER@HOST].", show_default=False),
]


def default_node() -> str:
    """Return the node name of a user at a terminal: the same in the next command, so that an ack finds its claim."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    name = f"cli:{user}@{socket.gethostname()}"
    return name.encode()[:_NODE_BYTES_MAX].decode("utf-8", "ignore")


class Target(msgspec.Struct, frozen=True):
    """The server of a command, its key and its timeout."""

    url: str | None
    key_file: Path | None
    timeout_ms: int

    def endpoint(self) -> Endpoint:
        """Return the address and the key: from the flags, else from the environment. Raises Invalid and OSError."""
        return endpoint_of(self.url, None if self.key_file is None else key_in(self.key_file))

    @property
    def key_source(self) -> str:
        """Where the key is looked for."""
        return KEY_VARIABLE if self.key_file is None else str(self.key_file)


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a server, and pass it ``target``, made of them, and ``as_json``."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    named = [parameter for parameter in own if parameter.name not in ("target", "as_json")]

    @wraps(command)
    def run(**given: Any) -> None:
        target = Target(given.pop("url"), given.pop("key_file"), given.pop("timeout"))
        command(**given, target=target)

    options = [("url", Url, None), ("key_file", KeyFile, None), ("timeout", Timeout, DEFAULT_TIMEOUT)]
    return set_options(run, named, [*options, ("as_json", AsJson, False)])


def set_options(
    run: Callable[..., None], own: list[inspect.Parameter], options: list[tuple[str, Any, Any]]
) -> Callable[..., None]:
    """Declare the parameters of a wrapped command: its own, then options by name, type and default."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    plain = [parameter.replace(kind=keyword) for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
    plain += [inspect.Parameter(name, keyword, default=default, annotation=kind) for name, kind, default in options]
    rest = [parameter for parameter in own if parameter.kind is parameter.VAR_KEYWORD]
    run.__signature__ = inspect.Signature([*plain, *rest])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in plain}
    del run.__wrapped__  # type: ignore[attr-defined]
    return run


def key_in(file: Path) -> str:
    """Return the key in a file; a flag for the key itself would show it to every process. Raises Invalid for a file
    without exactly one key, and OSError.
    """
    with file.open("rb") as opened:
        words = opened.read(_KEY_FILE_BYTES_MAX).split()
    if len(words) != 1:
        raise Invalid(f"{file} must hold one key and nothing else")
    try:
        return words[0].decode("ascii")
    except UnicodeDecodeError:
        raise Invalid(f"{file} holds no key: it is not ASCII") from None
