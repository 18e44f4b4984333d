"""Begin a suspect: tell the broker that its handler starts, before anything of the job is looked at.

A job whose worker was lost twice may be what ends workers. Once the broker has logged that it was begun, its next loss
has one culprit. Without an answer it is not run: if it then ended this worker, nobody could tell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from tenure.backoff import backoff_ms
from tenure.errors import Closed, Conflict, Indeterminate, LeaseLost, NotFound, Overloaded, TenureError
from tenure.worker.backends.backend import Backend
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing
from tenure.worker.settings import WorkerSettings

__all__ = ["ALONE_LOST_COUNT", "Begin", "begin", "is_unsupported"]

log = logging.getLogger("tenure.worker")

ALONE_LOST_COUNT: Final = 2
"""A job whose worker was lost so often is begun before it runs, and runs alone in a process for suspects."""
_NOT_ALLOWED: Final = 405


class Begin(Enum):
    """The outcome of a begin."""

    BEGUN = "begun"
    NOT_NOW = "not now"
    """Another job of this group is begun, or nobody answered: the job is returned."""
    LOST = "lost"


async def begin(
    job: HeldJob, backend: Backend, *, timing: Timing, settings: WorkerSettings, is_ending: Callable[[], bool]
) -> Begin:
    """Begin a job, and repeat it until it is answered, while its lease lives and the worker does not end."""
    failures = 0
    while timing.now_ms() < job.deadline_ms and not is_ending():
        try:
            await backend.begin(job)
            return Begin.BEGUN
        except LeaseLost:
            return Begin.LOST
        except (Overloaded, Closed, Indeterminate) as error:
            log.debug("the begin of job %d of %s was not answered: %s", job.seq, job.topic, error)
        except TenureError as error:
            return _outcome(job, error)
        failures += 1
        most_ms = settings.begin_retry_ms
        await timing.sleep_ms(backoff_ms(failures, min_ms=min(100, most_ms), max_ms=most_ms))
    return Begin.NOT_NOW


def _outcome(job: HeldJob, error: TenureError) -> Begin:
    if is_unsupported(error):
        return Begin.BEGUN  # suspects are not kept apart any more: it runs as any other job
    if isinstance(error, NotFound):
        return Begin.LOST
    log.info("job %d of %s is not run now: %s", job.seq, job.topic, error)
    return Begin.NOT_NOW


def is_unsupported(error: BaseException | None) -> bool:
    """Return whether the broker knows no begin and no return: it is an older one, or its upgrade is not finalized."""
    if isinstance(error, NotFound):
        return error.code != "topic_not_found"
    return isinstance(error, TenureError) and (
        (isinstance(error, Conflict) and error.code == "feature_off") or error.detail.get("status") == _NOT_ALLOWED
    )
