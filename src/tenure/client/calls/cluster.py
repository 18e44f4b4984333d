"""Calls about the servers that share a home: who leads and who follows, and handing the lead over."""

from __future__ import annotations

from msgspec.json import Decoder

from tenure.client.calls.requests import call, get, request_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.contract.bodies import HandOverBody
from tenure.contract.repeat import Repeat
from tenure.contract.replies import ClusterInfo

__all__ = ["cluster", "hand_over"]

_info = Decoder(ClusterInfo)


def cluster(session: Session) -> Plan[ClusterInfo]:
    """Return one server's view of the servers that share its home; a server without one is ``alone``."""
    return (yield from get(session, "/v0/cluster", _info))


def hand_over(session: Session, *, to: str = "") -> Plan[ClusterInfo]:
    """Give the lead to the server that advertises a URL, or to any where it is empty; return the old leader's view.

    Raises Conflict where no server follows closely enough, NotFound where none is known by that URL. It is not repeated
    after a lost answer: the server that leads then would hand over once more.
    """
    info, _ = yield from call(session, request_of("/v0/cluster/handover", HandOverBody(to)), _info, Repeat.NEVER)
    return info
