"""What every plan of one client shares: its settings, its name, its lanes, and where time and chance come from."""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
from collections.abc import Callable
from itertools import count

from tenure.client.plan.producer_ids import Lanes
from tenure.client.settings import ClientSettings
from tenure.client.transport.fork import renew_in_child
from tenure.contract.names import NODE_BYTES_MAX, check_node

__all__ = ["Session", "default_node"]


def default_node() -> str:
    """A name for this process that no other has: the host, the process and a few random letters."""
    host = socket.gethostname()[: NODE_BYTES_MAX // 2].encode("ascii", "replace").decode() or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class Session:
    """Plain data behind a client; the plans read it, only `lanes` and `claim_id` change. In a forked process the names
    that were made up are made up again: two processes must not look like one.
    """

    def __init__(
        self,
        *,
        node: str | None = None,
        settings: ClientSettings | None = None,
        now_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._given_node = None if node is None else check_node(node)
        self.settings = settings or ClientSettings()
        self.lanes = Lanes(self.settings.connections_max)
        self.now_s = now_s
        self.chance = chance
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Make up the names that nobody gave."""
        self.node = self._given_node or default_node()
        self._claim_name = secrets.token_urlsafe(12)
        self._claims = count(1)

    def claim_id(self) -> str:
        """A name for one claim, so that asking again is not claiming again."""
        return f"{self._claim_name}-{next(self._claims)}"

    def node_or(self, node: str | None) -> str:
        """The node of a call: the one given, or the client's own. Raises Invalid."""
        return self.node if node is None else check_node(node)
