"""DECIDES: the decision of each command, as FOLDS has the fold of each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.contract import commands as c
from tenure.core.decide.append import append
from tenure.core.decide.claim import claim
from tenure.core.decide.decision import Decided
from tenure.core.decide.jobs import get_job, list_jobs, list_leases
from tenure.core.decide.losses import begin, end_node, return_jobs
from tenure.core.decide.reads import delete_records, diff
from tenure.core.decide.redrive import redrive
from tenure.core.decide.routers import delete_router, get_router, list_routers, put_router
from tenure.core.decide.settle import ack, extend, nack
from tenure.core.decide.strip import strip
from tenure.core.decide.topics import delete_topic, get_topic, list_topics, patch_topic, put_topic

__all__ = ["BOUNDED", "DECIDES", "PASSES", "STEPPED", "Decide"]

Decide = Callable[..., Decided[Any]]
"""Called with the state, the command, the time and the payloads; some take the bounds of the caller too."""

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

STEPPED: Final[frozenset[type[c.Command[Any]]]] = frozenset((c.DeleteRecords, c.EndNode, c.Nack, c.Redrive))
"""The commands that the broker takes step by step, over as many turns of its loop as that needs."""

BOUNDED: Final[frozenset[type[c.Command[Any]]]] = frozenset(
    (c.Append, c.Redrive, c.PutTopic, c.DeleteTopic, c.PutRouter, c.ListRouters)
)
"""The commands that are decided by the bounds of their caller too."""

_NEEDS_PRESENT: Final[tuple[type[c.Command[Any]], ...]] = (
    c.Claim,
    c.Ack,
    c.Nack,
    c.Extend,
    c.Return,
    c.Begin,
    c.PutTopic,
    c.PatchTopic,
)
_LOOKS: Final[tuple[type[c.Command[Any]], ...]] = (c.GetTopic, c.ListJobs, c.GetJob, c.ListLeases, c.Strip)
PASSES: Final[dict[type[c.Command[Any]], bool]] = {
    **dict.fromkeys(_NEEDS_PRESENT, True),
    **dict.fromkeys(_LOOKS, False),
}
"""The commands before which time passes on their topic, and whether they wait where that takes more than one step.

Looks go on, and show how far it has come; so do appends and reads, on which time does not pass.
"""
