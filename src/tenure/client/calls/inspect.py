"""Read-only calls: jobs and leases of a queue, health, readiness and metrics of the server."""

from __future__ import annotations

from msgspec.json import Decoder

from tenure.client.calls.requests import get
from tenure.client.plan.encode import path_of, query_of
from tenure.client.plan.retry import exchange, require_success
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.repeat import Repeat
from tenure.contract.replies import Health, JobInfo, JobPage, LeasePage, Ready
from tenure.contract.values import check_whole

__all__ = ["health", "job", "jobs", "leases", "metrics", "ready"]

_jobs = Decoder(JobPage)
_job = Decoder(JobInfo)
_leases = Decoder(LeasePage)
_health = Decoder(Health)
_ready = Decoder(Ready)


def jobs(
    session: Session, topic: str, *, state: str | None = None, limit: int = 100, cursor: str | None = None
) -> Plan[JobPage]:
    """Return jobs in one state (``ready`` by default, or in_flight, delayed, parked), ascending by seq."""
    return (yield from get(session, query_of(path_of(topic, "jobs"), state=state, limit=limit, cursor=cursor), _jobs))


def job(session: Session, topic: str, seq: int) -> Plan[JobInfo]:
    """Return one job: its record, its state, and how its last deliveries ended. Raises NotFound once it is done."""
    return (yield from get(session, path_of(topic, "jobs", str(check_whole(seq, "seq"))), _job))


def leases(session: Session, topic: str, *, limit: int = 100, cursor: str | None = None) -> Plan[LeasePage]:
    """Return live leases: who holds what, since when and until when."""
    return (yield from get(session, query_of(path_of(topic, "leases"), limit=limit, cursor=cursor), _leases))


def health(session: Session) -> Plan[Health]:
    """Return whether the process answers."""
    return (yield from get(session, "/v0/health", _health))


def ready(session: Session) -> Plan[Ready]:
    """Return whether requests are served. Raises Closed while the log is replayed or the server drains."""
    return (yield from get(session, "/v0/ready", _ready))


def metrics(session: Session) -> Plan[str]:
    """Return the server's metrics as Prometheus text."""
    request = Request("GET", "/v0/metrics", headers={"accept": "text/plain"})
    answered = require_success((yield from exchange(session, request, Repeat.READ)))
    return answered.response.body.decode()
