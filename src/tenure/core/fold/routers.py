"""Fold routers: put, deleted, and moved along their source."""

from __future__ import annotations

from tenure.core.events import RouterDeleted, RouterMoved, RouterPut
from tenure.core.state.router import Router
from tenure.core.state.state import State

__all__ = ["router_deleted", "router_moved", "router_put"]


def router_put(state: State, event: RouterPut, location: int) -> None:
    known = state.remove_router(event.name)
    router = Router(
        name=event.name,
        source=event.source,
        dest=event.dest,
        preserve_node=event.preserve_node,
        preserve_tag=event.preserve_tag,
        create_dest=event.create_dest,
        filter=event.filter,
        allow_cycle=event.allow_cycle,
        cursor=event.cursor,
        forwarded=known.forwarded if known else 0,
        missed=known.missed if known else 0,
    )
    state.add_router(router)


def router_deleted(state: State, event: RouterDeleted, location: int) -> None:
    state.remove_router(event.name)


def router_moved(state: State, event: RouterMoved, location: int) -> None:
    router = state.routers.get(event.name)
    if router is not None:
        router.cursor = event.cursor
        router.forwarded += event.forwarded
        router.missed += event.missed
    dest = state.by_id.get(event.dest) if event.missed else None
    if dest is not None:  # one seq is burnt there, so that its readers meet the loss as a gap
        dest.head_seq += 1
        dest.trim_seq, dest.trim_missed = dest.head_seq, event.missed
        dest.bury(dest.head_seq, dest.head_seq + 1)
