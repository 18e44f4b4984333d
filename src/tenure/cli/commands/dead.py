"""`tenure dead`: list and show dead letters, redrive them, or drop them for good."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from tenure.cli.commands.dead_letters import PAGE, Place, place_of, selection_of
from tenure.cli.commands.inspect import show_record
from tenure.cli.main import EMPTY, OK
from tenure.cli.options import Target, on_server
from tenure.cli.progress import Progress
from tenure.cli.remote import ask, plain, reword
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import count, short, when
from tenure.contract.dead_letters import Selection
from tenure.errors import Invalid, TenureError

if TYPE_CHECKING:
    from tenure.client.client import Client

__all__ = ["dead"]

dead = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Dead letters: list, show, redrive, drop.")

# One run holds the seqs of its letters in memory, eight bytes each.
_LETTERS_MAX: Final = 1_000_000

Name = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue, or a dead-letter topic by its own name.", show_default=False)
]
Seqs = Annotated[list[int] | None, typer.Argument(metavar="SEQ", help="Only these [all].", show_default=False)]
Match = Annotated[str | None, typer.Option("--match", help="Only with this tag; x* takes every tag that begins so.")]
ReasonLike = Annotated[str | None, typer.Option("--reason-like", help="Only where the reason has this in it.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=_LETTERS_MAX, help="At most so many.")]
Parked = Annotated[
    bool | None, typer.Option("--parked/--letters", help="Jobs parked in the queue, or letters [what there can be].")
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dead.command("list")
@on_server
def _list(
    queue: Name,
    match: Match = None,
    reason_like: ReasonLike = None,
    limit: Limit = 100,
    parked: Parked = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List dead letters, or parked jobs: where each came from, how often it was tried, and why it died."""
    chosen = _selection(None, match, reason_like)

    def find(client: Client) -> Shown:
        place = place_of(client, queue, parked=parked)
        letters = list(place.letters(chosen, limit=limit + 1))
        found = {"topic": place.topic, "parked": place.parked, "more": len(letters) > limit}
        return found | {"letters": plain(letters[:limit])}, OK

    raise typer.Exit(ask(target, find, _show_list, as_json=as_json))


@dead.command("show")
@on_server
def _show(
    queue: Name,
    seq: Annotated[int, typer.Argument(metavar="SEQ", help="Its seq, as dead list gives it.", show_default=False)],
    parked: Parked = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show one dead letter whole: its data, its provenance, and for a parked job its deliveries."""

    def find(client: Client) -> Shown:
        return place_of(client, queue, parked=parked).one(seq), OK

    raise typer.Exit(ask(target, find, show_record, as_json=as_json))


@dead.command("redrive")
@on_server
def _redrive(
    queue: Name,
    seqs: Seqs = None,
    match: Match = None,
    reason_like: ReasonLike = None,
    limit: Limit = _LETTERS_MAX,
    to: Annotated[str | None, typer.Option("--to", help="Another queue than the one they came from.")] = None,
    keep_deliveries: Annotated[
        bool, typer.Option("--keep-deliveries", help="Do not count their deliveries from zero again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go where.")] = False,
    yes: Yes = False,
    parked: Parked = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Put dead letters back to work, each in one step. Where they go to another queue than named, it says so before; on
    a terminal it asks, where that is more than one. Exit code 4 where there was none.
    """
    chosen = _selection(seqs, match, reason_like)

    def find(client: Client) -> Shown:
        place = place_of(client, queue, parked=parked)
        if place.parked and to is not None:
            raise Invalid("parked jobs go back to work where they are: leave --to out")

        def move(part: list[int]) -> int:
            return client.redrive(
                place.topic, seqs=part, to=to, limit=len(part), reset_deliveries=not keep_deliveries
            ).redriven

        found, destinations = _bound_for(place, chosen, limit, to)
        about = {"topic": place.topic, "destinations": destinations}
        if dry_run:
            return {"verb": "would redrive", "count": len(found), **about}, OK if found else EMPTY
        if not yes and destinations.keys() - {queue, to}:
            _name_destinations(destinations)
        moved = _each_part(found, move, what="redrive")
        return {"verb": "redriven", "count": moved, **about}, OK if moved else EMPTY

    raise typer.Exit(ask(target, find, _show_count, as_json=as_json))


@dead.command("drop")
@on_server
def _drop(
    queue: Name,
    seqs: Seqs = None,
    match: Match = None,
    reason_like: ReasonLike = None,
    limit: Limit = _LETTERS_MAX,
    yes: Yes = False,
    parked: Parked = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Delete dead letters for good, after asking. Exit code 4 where there was none."""
    chosen = _selection(seqs, match, reason_like)

    def find(client: Client) -> Shown:
        place = place_of(client, queue, parked=parked)
        doomed = _seqs_of(place, chosen, limit)
        if doomed and not yes:
            _confirm(place, len(doomed))
        dropped = _each_part(doomed, lambda part: client.delete_records(place.topic, seqs=part).deleted, what="drop")
        return {"verb": "dropped", "topic": place.topic, "count": dropped}, OK if dropped else EMPTY

    raise typer.Exit(ask(target, find, _show_count, as_json=as_json))


def _selection(seqs: list[int] | None, match: str | None, reason_like: str | None) -> Selection:
    try:
        return selection_of(seqs, match, reason_like)
    except Invalid as error:
        raise typer.BadParameter(error.message) from None


def _bound_for(place: Place, chosen: Selection, limit: int, to: str | None) -> tuple[array[int], dict[str, int]]:
    """Return the seqs of the chosen letters, and how many of them go to each queue."""
    seqs, destinations = array("Q"), Counter[str]()
    for letter in place.letters(chosen, limit=limit):
        seqs.append(letter.seq)
        destinations[to or letter.source] += 1
    return seqs, dict(sorted(destinations.items()))


def _name_destinations(destinations: dict[str, int]) -> None:
    """Name on stderr where the letters go. Ask on a terminal, where that is more than one queue: Abort at a no."""
    for name, number in destinations.items():
        typer.echo(f"to {name}: {count(number, 'dead letter')}", err=True)
    if len(destinations) > 1 and sys.stdin.isatty():
        typer.confirm("Redrive them?", abort=True, err=True)


def _seqs_of(place: Place, chosen: Selection, limit: int) -> array[int]:
    return array("Q", (letter.seq for letter in place.letters(chosen, limit=limit)))


def _each_part(seqs: array[int], act: Callable[[list[int]], int], *, what: str) -> int:
    """Act on a thousand letters at a time, and return how many were done. A call may stop before a letter that cannot
    move: repeated, it raises why, and the error is extended by what was done before.
    """
    done = 0
    with Progress(what, total=len(seqs)) as progress:
        for start in range(0, len(seqs), PAGE):
            part = seqs[start : start + PAGE].tolist()
            left = len(part)
            try:
                while left and (acted := act(part)):
                    done, left = done + acted, left - acted
            except TenureError as error:
                message = f"{error.message}; {count(done, 'letter')} done before that" if done else error.message
                raise reword(error, message, done=done) from error
            progress.update(start + len(part), f"{done:,} of {len(seqs):,}")
    return done


def _confirm(place: Place, number: int) -> None:
    """Ask on the terminal. Raises Invalid without a terminal, Abort where the answer is no."""
    if not sys.stdin.isatty():
        raise Invalid(f"this would delete {count(number, 'dead letter')} for good: say --yes where nobody can be asked")
    what = "parked job" if place.parked else "dead letter"
    typer.confirm(f"Delete {count(number, what)} of {place.topic} for good?", abort=True, err=True)


def _show_list(console: Console, found: Payload) -> None:
    letters = found["letters"]
    if not letters:
        console.print(f"{found['topic']}: no {'parked jobs' if found['parked'] else 'dead letters'}", markup=False)
        return
    console.print(f"{'parked in' if found['parked'] else 'dead letters in'} {found['topic']}:", markup=False)
    rows = map(_row, letters)
    table(console, ("seq#", "from", "job#", "deliveries#", "died", "tag", "reason"), rows)
    if found["more"]:
        console.print(f"these are the first {len(letters):,}: --limit shows more")


def _row(letter: dict[str, Any]) -> tuple[object, ...]:
    job = "" if letter["source_seq"] is None else letter["source_seq"]
    origin = letter["seq"], letter["source"], job, letter["deliveries"]
    return *origin, when(letter["ts"]), letter["tag"] or "", short(letter["reason"])


def _show_count(console: Console, found: Payload) -> None:
    """Print how many letters were touched, and where they went."""
    number = count(found["count"], "dead letter")
    done = f"{found['verb']} {number}{_where(found)}" if found["count"] else "nothing to do"
    console.print(f"{found['topic']}: {done}", markup=False)


def _where(found: Payload) -> str:
    destinations = found.get("destinations", {})
    if len(destinations) > 1:
        return ": " + ", ".join(f"{number:,} to {name}" for name, number in destinations.items())
    return "".join(f" to {name}" for name in destinations)
