"""`Session`: what all plans of one client share: settings, node, producer lanes, claim ids, clock and randomness."""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
from collections.abc import Callable
from itertools import count

from tenure.client.plan.producer_lanes import ProducerLanes
from tenure.client.settings import ClientSettings
from tenure.client.transport.fork import renew_in_child
from tenure.contract.names import NODE_BYTES_MAX, check_node

__all__ = ["Session", "default_node"]


def default_node() -> str:
    """Return a node name that no other process has: the host, the process id and a few random letters."""
    host = socket.gethostname()[: NODE_BYTES_MAX // 2].encode("ascii", "replace").decode() or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class Session:
    """The state of one client. Plans read it; only `lanes` and `claim_id` change. A forked process gets new generated
    names, because two processes must not look like one.
    """

    def __init__(
        self,
        *,
        node: str | None = None,
        settings: ClientSettings | None = None,
        now_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        has_several: Callable[[], bool] = lambda: False,
    ) -> None:
        self._given_node = None if node is None else check_node(node)
        self.settings = settings or ClientSettings()
        self.lanes = ProducerLanes(self.settings.connections_max)
        self.now_s = now_s
        self.chance = chance
        self.has_several = has_several
        """Return whether this client knows several servers, and so has another one to turn to."""
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Generate the names that the caller did not give."""
        self.node = self._given_node or default_node()
        self._claim_name = secrets.token_urlsafe(12)
        self._claims = count(1)

    def claim_id(self) -> str:
        """Return a new id for one claim, so that a retry of it claims nothing more."""
        return f"{self._claim_name}-{next(self._claims)}"

    def node_or(self, node: str | None) -> str:
        """Return the node of a call: the one given, or the client's own. Raises Invalid."""
        return self.node if node is None else check_node(node)
