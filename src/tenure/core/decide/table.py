"""DECIDES: the decision of each command, as FOLDS has the fold of each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.contract import commands as c
from tenure.core.decide.append import append
from tenure.core.decide.claim import claim
from tenure.core.decide.decision import Decided, Payloads
from tenure.core.decide.jobs import get_job, list_jobs, list_leases
from tenure.core.decide.losses import begin, end_node, return_jobs
from tenure.core.decide.reads import delete_records, diff
from tenure.core.decide.redrive import redrive
from tenure.core.decide.routers import delete_router, get_router, list_routers, put_router
from tenure.core.decide.settle import ack, extend, nack
from tenure.core.decide.strip import strip
from tenure.core.decide.topics import delete_topic, get_topic, list_topics, patch_topic, put_topic
from tenure.core.state.state import State

__all__ = ["DECIDES", "STEPPED", "Decide"]

Decide = Callable[[State, Any, int, Payloads], Decided[Any]]

DECIDES: Final[dict[type[c.Command[Any]], Decide]] = {
    c.Append: append,
    c.Diff: diff,
    c.DeleteRecords: delete_records,
    c.Claim: claim,
    c.Ack: ack,
    c.Nack: nack,
    c.Extend: extend,
    c.Return: return_jobs,
    c.Begin: begin,
    c.EndNode: end_node,
    c.Redrive: redrive,
    c.PutTopic: put_topic,
    c.PatchTopic: patch_topic,
    c.DeleteTopic: delete_topic,
    c.GetTopic: get_topic,
    c.ListTopics: list_topics,
    c.PutRouter: put_router,
    c.DeleteRouter: delete_router,
    c.GetRouter: get_router,
    c.ListRouters: list_routers,
    c.ListJobs: list_jobs,
    c.GetJob: get_job,
    c.ListLeases: list_leases,
    c.Strip: strip,
}

STEPPED: Final[frozenset[type[c.Command[Any]]]] = frozenset((c.DeleteRecords, c.EndNode, c.Redrive))
"""The commands that the broker takes step by step, over as many turns of its loop as that needs."""
