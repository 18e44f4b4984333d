"""Print the results of the buffer commands as text."""

from __future__ import annotations

from rich.console import Console

from tenure.cli.screen import Payload, table
from tenure.cli.words import age, count, size

__all__ = ["changed", "collected", "dropped", "groups", "nothing", "quarantined", "stat", "verified"]

_LISTED_MAX = 50
_NAMED_MAX = 5


def stat(console: Console, found: Payload) -> None:
    """Print the figures, then the groups."""
    held = count(found["batches"], "batch", "batches")
    which = f"sequences {found['first_seq']} to {found['next_seq'] - 1}" if found["batches"] else "nothing is waiting"
    console.print(f"{found['url']}: {held} held, {which}", soft_wrap=True)
    total, entries = found["batches_total"], found["entries_total"]
    console.print(
        f"in all {count(total, 'batch', 'batches')}, {count(entries, 'entry', 'entries')}, "
        f"{size(found['bytes_total'])} compressed, by {count(found['producers'], 'producer')}",
        soft_wrap=True,
    )
    console.print(f"cost: {_cost(found)}", soft_wrap=True)
    console.print(f"retention: {age(found['retain_for_ms']) if found['retain_for_ms'] else 'none'}")
    _kept(console, found["kept"])
    if found["groups"]:
        groups(console, found)


def _cost(found: Payload) -> str:
    rates = f"{found['objects_per_hour']:,.0f} objects per hour, {found['commits_per_batch']:.2f} commits per batch"
    if found["writes_total"] is None:
        return f"requests unknown, as a version that did not count them wrote here; {rates}"
    per_gb = "" if found["requests_per_gb"] is None else f"{found['requests_per_gb']:,.0f} requests per GB, "
    return (
        f"{count(found['writes_total'], 'write')}, {count(found['reads_total'], 'read')}, "
        f"{count(found['conflicts_total'], 'conflict')}, {per_gb}{rates}"
    )


def groups(console: Console, found: Payload) -> None:
    """Print the position of each group, and the batches that it alone pins."""
    if not found["groups"]:
        console.print("the buffer has no group yet, so it keeps everything")
        return
    heads = ("group", "epoch#", "last acked#", "behind#", "for#", "idle#", "pins alone#", "skipped#")
    rows = [
        (
            each["group"],
            each["epoch"],
            "" if each["last_acked"] is None else each["last_acked"],
            each["lag_batches"],
            age(each["lag_ms"]),
            age(each["idle_ms"]),
            each["pinned_batches"],
            each["skipped"],
        )
        for each in found["groups"]
    ]
    table(console, heads, rows)


def dropped(console: Console, found: Payload) -> None:
    """Print that a group was dropped."""
    console.print(f"group {found['dropped']} is dropped: no batch is kept for it any more", markup=False)


def changed(console: Console, found: Payload) -> None:
    """Print the retention, before and now."""
    now, before = (age(found[name]) if found[name] else "none" for name in ("retain_for_ms", "before_ms"))
    console.print(f"retention: {now} (it was {before})")


def _kept(console: Console, kept: list[Payload]) -> None:
    """Print which groups, or the retention, pin the batches that stay."""
    for each in kept:
        batches = count(each["batches"], "batch", "batches")
        match each["why"]:
            case "group":
                named = ", ".join(each["groups"][:_NAMED_MAX])
                more = len(each["groups"]) - _NAMED_MAX
                who = f"group {named}{f' and {more} more' if more > 0 else ''}, idle for {age(each['idle_ms'])}"
            case "retention":
                who = "the retention"
            case _:
                who = "whoever comes: there is no group yet"
        console.print(f"kept: {batches} for {who}", markup=False, soft_wrap=True)


def collected(console: Console, found: Payload) -> None:
    """Print what was deleted, or would be."""
    verb = "would go" if found["dry_run"] else "gone"
    parts = (
        count(found["objects"], "batch", "batches") + f" ({size(found['bytes'])})",
        count(found["deltas"], "delta"),
        count(found["runs"], "run"),
    )
    console.print(f"{verb}: {', '.join(parts)}; {count(found['trimmed'], 'entry', 'entries')} left the manifest")
    for location in found["locations"][:_LISTED_MAX]:
        console.print(f"  {location}", markup=False)
    if len(found["locations"]) > _LISTED_MAX:
        console.print(f"  and {len(found['locations']) - _LISTED_MAX:,} more; --json lists them all")
    if found["foreign"]:
        console.print(f"left alone: {count(len(found['foreign']), 'file')} that no buffer made")
    _kept(console, found["kept"])
    if found["held_back"]:
        console.print(f"stopped: {found['held_back']}", markup=False)


def quarantined(console: Console, found: Payload) -> None:
    """Print which batch was quarantined, and who skips it."""
    then = (
        "is skipped, and quarantine/ says why. Start the group's consumer again."
        if found["passed"]
        else "is given up: quarantine/ says why. Spark jobs and backfills leave it out; other consumers stop at it."
    )
    console.print(f"batch {found['quarantined']} of group {found['group']} {then}", markup=False)


def verified(console: Console, found: Payload) -> None:
    """Print harmful findings, then harmless ones."""
    findings = sorted(found["findings"], key=lambda each: each["kind"] not in ("damaged", "missing", "gap"))
    if not findings:
        console.print("everything that the manifest names is there and whole, and nothing else")
        return
    rows = [
        (each["kind"], "" if each["seq"] is None else each["seq"], each["key"], each["message"]) for each in findings
    ]
    table(console, ("what", "batch#", "object", "why"), rows[:_LISTED_MAX])
    if len(rows) > _LISTED_MAX:
        console.print(f"and {len(rows) - _LISTED_MAX:,} more; --json lists them all")
    if not found["harmful"]:
        console.print("nothing that the manifest names is damaged or missing")


def nothing(console: Console, found: Payload) -> None:
    """Print nothing, for a command with JSON output only."""
