"""Names beyond a key's prefixes in what the key may see: the ends of a router, a dead-letter topic, a cycle.

Such names come from an operator whose key reaches both sides. One rule for each: a router is reached by a key that
reaches its name and both its ends; a dead-letter topic beyond the key is left out of a config; a cycle names the topics
that the key reaches. Listings look only where the key reaches, so their cost does not follow what others have.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tenure.broker.broker import Broker
from tenure.contract.replies import ConfigInfo
from tenure.core.paging import after_name
from tenure.core.state.router import Router
from tenure.errors import Conflict, Denied
from tenure.http.api.app import Call
from tenure.http.api.auth import visible

__all__ = ["check_router", "listed_prefixes", "mask_cycle", "shown_config", "visible_names"]


def check_router(call: Call, router: Router) -> None:
    """Raise Denied where the caller's key does not reach a router."""
    if not router.within(lambda name: visible(call, name)):
        raise Denied("this router has an end that this key does not reach: use a key that does, or another name")


def mask_cycle(call: Call, conflict: Conflict) -> Conflict:
    """Return the error of a router that closes a cycle, with null for each topic beyond the caller's key."""
    cycle = conflict.detail.get("cycle")
    if cycle is None or all(visible(call, name) for name in cycle):
        return conflict
    return Conflict(
        "records would go round through topics that this key does not reach: choose another dest, or set allow_cycle",
        code=conflict.code,
        cycle=[name if visible(call, name) else None for name in cycle],
    )


def shown_config(call: Call, config: ConfigInfo) -> ConfigInfo:
    """Return a topic's config without the name of a dead-letter topic that the caller's key does not reach."""
    if config.dead_letter is None or visible(call, config.dead_letter):
        return config
    return replace(config, dead_letter=None, dead_letter_hidden=True)


def listed_prefixes(call: Call, prefix: str = "") -> list[str]:
    """Return the prefixes that cover the names that start with ``prefix`` and are within reach, ascending and apart."""
    if call.key is None or call.key.prefixes is None:
        return [prefix]
    both = (max(prefix, own, key=len) for own in call.key.prefixes if own.startswith(prefix) or prefix.startswith(own))
    found: list[str] = []
    for one in sorted(both):
        if not found or not one.startswith(found[-1]):
            found.append(one)
    return found


def visible_names(
    broker: Broker, call: Call, *, prefix: str = "", cursor: str | None = None, page: int = 1_000
) -> Iterator[str]:
    """Yield the names of topics that the caller's key reaches, in order, after a cursor; Invalid for a corrupt one."""
    after_name(cursor)
    for own in listed_prefixes(call, prefix):
        at = cursor
        while True:
            found = broker.topics(prefix=own, limit=page, cursor=at)
            yield from found.items
            at = found.next_cursor
            if at is None:
                break
