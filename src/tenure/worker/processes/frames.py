"""The messages between a worker and its child processes: JSON with its length in front. No pickle.

parent → child   Run, then an Answer to each Ask
child → parent   Ready once; for each Run Begun, Ask as often as the handler likes, then Done
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from tenure.worker.runtime.job import HeldJob
from tenure.worker.verdict import Verdict

__all__ = [
    "HEAD",
    "Answer",
    "Ask",
    "Begun",
    "Done",
    "FromChild",
    "FromParent",
    "Ready",
    "Run",
    "decode_child",
    "decode_parent",
    "pack",
]

HEAD: Final = struct.Struct("<I")


class Run(msgspec.Struct, tag="run"):
    """Run the handler of a job."""

    job: HeldJob


class Answer(msgspec.Struct, tag="answer"):
    """Whether the broker took the verdict or the extend of an Ask."""

    taken: bool


class Ready(msgspec.Struct, tag="ready"):
    """The app is imported; ``error`` is why it is not."""

    error: str | None = None


class Begun(msgspec.Struct, tag="begun"):
    """The job has arrived and its handler runs next: a child that ends before this message has not begun the job."""


class Ask(msgspec.Struct, tag="ask"):
    """The handler settles its job, or with ``lease_ms`` (0: the task's) extends it."""

    verdict: Verdict | None = None
    lease_ms: int | None = None


class Done(msgspec.Struct, tag="done"):
    """The handler has ended. ``raised`` is ack, nack, reject, cancelled or the type of its error;
    ``trace`` is logged.
    """

    raised: str | None = None
    message: str = ""
    delay_ms: int | None = None
    trace: str = ""


FromParent = Run | Answer
FromChild = Ready | Begun | Ask | Done

_encode: Final = msgspec.json.Encoder().encode
_from_parent: Final = msgspec.json.Decoder(FromParent)
_from_child: Final = msgspec.json.Decoder(FromChild)


def pack(message: FromParent | FromChild) -> bytes:
    """Return a message as bytes for the pipe."""
    body = _encode(message)
    return HEAD.pack(len(body)) + body


def decode_parent(body: bytes) -> FromParent:
    """Decode a message of the worker."""
    message: FromParent = _from_parent.decode(body)
    return message


def decode_child(body: bytes) -> FromChild:
    """Decode a message of a child."""
    message: FromChild = _from_child.decode(body)
    return message
