"""Ranges that a table cannot take at once, in halves.

Where a range ends is decided before anybody knows how large its rows are, and stays decided. So a range that is too
large for the driver is halved at the middle of its sequences, which every driver finds alike; the end of the second
half is agreed on before the first is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from tenure.errors import Invalid
from tenure.spark.jobs.plan import Planned
from tenure.spark.jobs.range_writer import Mover
from tenure.spark.jobs.retrying import Retrying

__all__ = ["written"]

log = logging.getLogger("tenure.spark")


def written(mover: Mover, retrying: Retrying, planned: Planned, *, halve: Callable[[Planned], Planned]) -> Planned:
    """Write a range, or as much of its beginning as the table takes at once; return what was written.

    Raises as ``Mover.write``, Invalid (``too_large_for_driver``) only for a single batch.
    """
    while True:
        try:
            retrying(partial(mover.write, planned))
        except Invalid as error:
            if error.code != "too_large_for_driver" or planned.low == planned.high:
                raise
            log.info("batches %s to %s are written in halves: %s", planned.low, planned.high, error)
            planned = retrying(partial(halve, planned))
        else:
            return planned
