"""`tenure cluster`: the servers that share a home: who leads, handing the lead over, and whether the home is sound."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Console

from tenure.cli import screen
from tenure.cli.main import OK, PROBLEM
from tenure.cli.options import Target, on_server
from tenure.cli.remote import ask, exit_code, open_client, plain, report_refusal
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import age, count, size
from tenure.errors import Invalid, NotFound, TenureError

__all__ = ["cluster"]

cluster = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Servers that share a home: who leads, and handing over."
)

Endpoints = Annotated[
    str | None,
    typer.Argument(metavar="[URL,…]", help="The servers to ask, separated by commas [--url].", show_default=False),
]


@cluster.command("status")
@on_server
def _status(endpoints: Endpoints = None, *, target: Target, as_json: bool) -> None:
    """Ask each server who leads and how closely it follows. Exit code 1 where one does not answer, or none leads."""
    target = _at(endpoints, target)
    try:
        found = [_ask(replace(target, url=url), url) for url in _split(target.endpoint().url)]
    except (TenureError, OSError) as error:
        raise typer.Exit(report_refusal(target, error, as_json=as_json)) from None
    payload, code = _judge(found)
    if as_json:
        screen.document(payload)
    else:
        _show_status(screen.console_for(), payload)
    raise typer.Exit(code)


@cluster.command("handover")
@on_server
def _hand_over(
    endpoints: Endpoints = None,
    to: Annotated[
        str, typer.Option("--to", help="The server that is to lead, by its URL [any that has caught up].")
    ] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Give the lead to another server, and return once the old leader leads no more."""
    target = _at(endpoints, target)
    raise typer.Exit(ask(target, lambda client: (plain(client.hand_over(to=to)), OK), _show_handed, as_json=as_json))


@cluster.command("verify")
@on_server
def _verify(
    endpoints: Endpoints = None,
    home: Annotated[
        str, typer.Option("--home", help="Read this home, and ask no server: s3://…, gs://…, az://…, file:///….")
    ] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Read and prove the home of a running server, as `tenure home verify` does; one in a bucket only by --home."""
    from tenure.cli.commands.verify_home import show_verified, verify_url

    try:
        url = home or _home_of(_at(endpoints, target))
    except (TenureError, OSError) as error:
        raise typer.Exit(report_refusal(target, error, as_json=as_json)) from None
    raise typer.Exit(screen.answer(lambda: verify_url(url), show_verified, as_json=as_json))


def _at(endpoints: str | None, target: Target) -> Target:
    """Return the target with the servers that the arguments name, if they do."""
    return target if endpoints is None else replace(target, url=endpoints)


def _split(endpoints: str) -> list[str]:
    return list(dict.fromkeys(url.strip() for url in endpoints.split(",") if url.strip()))


def _ask(target: Target, url: str) -> Payload:
    """Return a server's view of the cluster, or the error that it, or the network, answered with."""
    try:
        with open_client(target) as client:
            return {"endpoint": url, **plain(client.cluster())}
    except (TenureError, OSError) as error:
        code, message = (error.code, error.message) if isinstance(error, TenureError) else ("unreadable", str(error))
        return {"endpoint": url, "error": {"code": code, "message": message}, "exit_code": exit_code(error)}


def _judge(found: list[Payload]) -> Shown:
    """Return the answers together, and the exit code: that of the refusal where nobody answered."""
    answered = [one for one in found if "error" not in one]
    leads = [one["url"] or one["endpoint"] for one in answered if one["role"] in ("leader", "alone")]
    epochs = [one["epoch"] for one in answered]
    payload: Payload = {"leader": leads[0] if leads else None, "epoch": max(epochs, default=None), "servers": found}
    code = OK if len(answered) == len(found) and leads else PROBLEM
    code = code if answered or not found else found[0]["exit_code"]
    for one in found:
        one.pop("exit_code", None)
    return payload, code


def _show_status(console: Console, payload: Payload) -> None:
    servers = payload["servers"]
    answered = [one for one in servers if "error" not in one]
    if payload["leader"] is None and answered:
        named = next((one["leader"] for one in answered if one["leader"]), "")
        console.print(f"none of these leads; {named or 'no server'} was the last known to", markup=False)
    elif answered and all(one["role"] == "alone" for one in answered):
        console.print("no server shares this log: it is alone")
    elif answered:
        console.print(f"epoch {payload['epoch']}, led by {payload['leader']}", markup=False)
    heads = ("server", "role", "epoch#", "link#", "behind", "not in the home", "seen", "version")
    table(console, heads, [*map(_row, servers), *map(_member_row, _others(servers))])
    for one in servers:
        if note := _note(one):
            console.print(f"{one['endpoint']}: {note}", markup=False)


def _note(one: Payload) -> str:
    """Return what an operator should know of a server beyond its row."""
    if "error" in one:
        return str(one["error"]["message"])
    moved = size(one["diverged_bytes"])
    return f"{moved} of its log never reached the home, and are in diverged/" if one["diverged_bytes"] else ""


def _row(one: Payload) -> tuple[object, ...]:
    if "error" in one:
        return one["endpoint"], "", "", "", "", "", "no answer", ""
    behind = "" if one["role"] != "standby" else _behind(one)
    version = next((known["version"] for known in one["members"] if known["url"] == one["url"]), "")
    return (
        *(one["endpoint"], one["role"], one["epoch"], one["number"], behind),
        *(size(one["unshipped_bytes"]) if one["role"] == "leader" else "", "answers", version),
    )


def _behind(one: Payload) -> str:
    lag = f"{count(one['follow_lag_links'], 'link')}, {age(one['follow_lag_ms'])}"
    return lag if one["is_caught_up"] else f"{lag}: catching up"


def _others(servers: list[Payload]) -> list[dict[str, Any]]:
    """Return the members that were seen in the home and not asked, each by its youngest sign of life."""
    answered = [one for one in servers if "error" not in one]
    asked = {one["endpoint"].rstrip("/") for one in servers} | {one["url"].rstrip("/") for one in answered}
    seen = sorted((known for one in answered for known in one["members"]), key=lambda known: known["age_ms"])
    youngest = {known["url"]: known for known in reversed(seen) if known["url"].rstrip("/") not in asked}
    return sorted(youngest.values(), key=lambda known: str(known["url"]))


def _member_row(known: dict[str, Any]) -> tuple[object, ...]:
    seen = f"{age(known['age_ms'])} ago"
    return known["url"], known["role"], known["epoch"], known["number"], "", "", seen, known["version"]


def _show_handed(console: Console, payload: Payload) -> None:
    heir = payload["leader"] or "a server that follows"
    console.print(f"{payload['url'] or 'the server'} leads no more", markup=False)
    console.print(f"{heir} takes the lead: see tenure cluster status", markup=False)


def _home_of(target: Target) -> str:
    """Return the directory that a server names as its home. Raises Invalid for any other place: a server that may not
    be trusted would choose where this machine's credentials for a store are sent.
    """
    with open_client(target) as client:
        found = client.cluster().home
    if not found:
        raise NotFound(
            "this server names no home: it has none, or the key has prefixes; name it with --home", code="no_home"
        )
    if not found.startswith("file:///"):
        raise Invalid(
            "the address is the server's word, and reading it would send it this machine's credentials: "
            f"if this is your home, give the command --home {shlex.quote(found)}",
            code="home_not_named",
        )
    return found
