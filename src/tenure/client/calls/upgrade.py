"""Calls about an upgrade of the server: its features on and off, and turning on the rest."""

from __future__ import annotations

from msgspec.json import Decoder

from tenure.client.calls.requests import call, get
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.repeat import Repeat
from tenure.contract.replies import UpgradeStatus

__all__ = ["finalize_upgrade", "upgrade_status"]

_status = Decoder(UpgradeStatus)


def upgrade_status(session: Session) -> Plan[UpgradeStatus]:
    """Return the server's version, and which of its features the log uses."""
    return (yield from get(session, "/v0/upgrade", _status))


def finalize_upgrade(session: Session) -> Plan[UpgradeStatus]:
    """Turn on every feature of the server's version, for good: an older version cannot open its directory after that.

    Raises Overloaded where the disk has no room for it.
    """
    status, _ = yield from call(session, Request("POST", "/v0/upgrade/finalize"), _status, Repeat.SAFE)
    return status
