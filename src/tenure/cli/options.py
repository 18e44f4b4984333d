"""The options that many commands share, under one name and with one meaning."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from tenure.errors import Invalid
from tenure.worker.durations import ms_of

__all__ = [
    "DEFAULT_TIMEOUT",
    "DEFAULT_URL",
    "AsJson",
    "Directory",
    "KeyFile",
    "NodeName",
    "QueueName",
    "Target",
    "Timeout",
    "Url",
    "default_node",
    "duration",
]

DEFAULT_URL: Final = "http://127.0.0.1:4000"
DEFAULT_TIMEOUT: Final = "10s"
_NODE_BYTES_MAX: Final = 128
_KEY_FILE_BYTES_MAX: Final = 4096


def duration(text: str) -> int:
    """Milliseconds from what stands on the command line: ``30s``, ``5m``, ``1h30m``, ``250ms``, or a plain 0."""
    try:
        return ms_of(0 if text == "0" else text, field="a duration")
    except Invalid:
        raise typer.BadParameter(f"{text!r} is no duration: write it like 250ms, 30s, 5m or 1h30m") from None


Directory = Annotated[Path, typer.Argument(help="A data directory, as given to Broker.open.", show_default=False)]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Url = Annotated[str, typer.Option("--url", envvar="TENURE_URL", help="Where the server listens.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="A file with the API key; else TENURE_KEY has it.", show_default=False),
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
    """Who a person at a terminal is: the same in the next command, so that an ack finds its claim."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    name = f"cli:{user}@{socket.gethostname()}"
    return name.encode()[:_NODE_BYTES_MAX].decode("utf-8", "ignore")


class Target(msgspec.Struct, frozen=True):
    """Which server a command talks to, with which key, and for how long."""

    url: str
    key_file: Path | None
    timeout_ms: int

    def key(self) -> str | None:
        """The key: from the file, else from TENURE_KEY, never from an argument, where every process could see it.
        Raises Invalid for a file that holds none.
        """
        if self.key_file is None:
            return os.environ.get("TENURE_KEY") or None
        with self.key_file.open("rb") as file:
            words = file.read(_KEY_FILE_BYTES_MAX).split()
        if len(words) != 1:
            raise Invalid(f"{self.key_file} must hold one key and nothing else")
        try:
            return words[0].decode("ascii")
        except UnicodeDecodeError:
            raise Invalid(f"{self.key_file} holds no key: it is not ASCII") from None
