"""Refusal of a new table where the group is past the beginning: its name was changed, or mistyped, or it was deleted.

The table would begin at the group's frontier, without a word of what it lacks, and a table takes ranges in order: the
earlier batches could never join it.
"""

from __future__ import annotations

from tenure.buffer.manifest.journal import Journal
from tenure.errors import Conflict
from tenure.objects.background import background
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.file.sink import place_of

__all__ = ["demand_known_table"]


def demand_known_table(pipeline: Pipeline, last: int | None, *, reached: int | None) -> None:
    """Raise Conflict (``table_new``) where a table that holds up to ``last`` holds nothing, and its group has gone on.

    ``reached`` is the last batch that runs of the pipeline have noted. Where every acknowledged batch was collected,
    only that distinguishes the group from one that begins here.
    """
    if last is not None or pipeline.source.topic is not None:
        return
    state = background().run(Journal(pipeline.buffer_url).open(create=False, writing=False))
    group = state.groups.get(pipeline.source.group)
    if group is None or (group.next_seq <= state.first_seq and reached != group.next_seq - 1):
        return
    name, following = pipeline.source.group, group.next_seq
    kept = (
        f"For a new table with those that are kept, from batch {state.first_seq} on, give [source] another group. "
        if state.first_seq < following
        else ""
    )
    raise Conflict(
        f"{place_of(pipeline)} holds nothing of the buffer under the name {pipeline.name}, and the group {name} has "
        f"acknowledged the batches up to {following - 1}: the table would lack them for ever. If the table or the "
        f"pipeline was renamed by mistake, correct the name. {kept}For a new table that begins with batch {following}: "
        f"tenure pipeline run {pipeline.file} --from-here",
        code="table_new",
        group=name,
        next=following,
        first=state.first_seq,
    )
