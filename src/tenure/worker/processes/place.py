"""`Place`: what a worker process gets from its supervisor: its index, its group, its board and the line for notices.

It is handed down in the environment, and the descriptors by their numbers.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

__all__ = ["Place", "follow_supervisor"]

_VARIABLE: Final = "TENURE_WORKER_SUPERVISOR"
_PR_SET_PDEATHSIG: Final = 1
_FAILED: Final = 1


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a worker process under its supervisor, whose process id is ``supervisor``.

    ``group`` is the same for all of its processes. ``board`` and ``notices`` are file descriptors: of the `Board`, and
    of the pipe on which the process asks for one that runs suspects. ``hold_ms`` is how long it waits before it takes
    jobs, ``on_demand`` whether it ends once there are no suspects.
    """

    supervisor: int
    index: int
    group: str
    board: int
    notices: int
    hold_ms: int = 0
    on_demand: bool = False

    @property
    def fds(self) -> tuple[int, int]:
        """The descriptors that the process inherits."""
        return self.board, self.notices

    def in_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment from which `follow_supervisor` reads this place."""
        return {**environment, _VARIABLE: msgspec.json.encode(self).decode()}


def follow_supervisor() -> Place | None:
    """Return the place of this process under its supervisor, and have the kernel send it a SIGTERM once the supervisor
    is gone; None where it has no supervisor.
    """
    given = os.environ.pop(_VARIABLE, None)
    if given is None:
        return None
    place = msgspec.json.decode(given, type=Place)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != place.supervisor:
        sys.exit(_FAILED)
    for fd in place.fds:
        os.set_inheritable(fd, False)
    return place
