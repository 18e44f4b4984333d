"""Shares: how much one key may use up of the limits that all keys share.

The broker knows no keys, and its data outlives them, so nothing durable records the owner of a topic. It need not:

- **A key with prefixes** holds everything under its prefixes, also what other keys created there. That can be counted
  at any time, also after a restart, and keys of one tenant have one share together.
- **A key without prefixes** reaches every name, so it holds what it created itself since the server started.

Each tally is a number that is never too low: taking adds one, and only when it reaches the share is it counted again,
at most once a second. So a call costs one comparison. A server with one key has no shares.

Bytes that wait for a sync are kept by owner: keys of the same prefixes have one account, and every other key its own.
The copies of a router are charged to the prefixes that its name is within, else to the key that made it, else to the
prefixes that its source is within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Final

from tenure.broker.broker import Broker
from tenure.contract.share import Share, Unsynced
from tenure.core.state.router import Router
from tenure.errors import Overloaded
from tenure.http.api.keys import Key
from tenure.http.settings import ServerSettings

__all__ = ["KeyShare", "Shares", "Tally", "share_used_up"]

_RECOUNT_S: Final = 1.0
_MAKERS_MIN: Final = 1_000


class Tally:
    """How many things of one kind a key holds, at most ``most``.

    ``total`` is how many there are of all keys together, ``alive`` how many there are under one name. ``names`` gives
    the names within the key's prefixes, and nothing is counted before all keys together hold one share; it is None for
    a key without prefixes: then the tally keeps the names itself.
    """

    __slots__ = ("_alive", "_counted_s", "_held", "_names", "_now_s", "_taken", "_total", "most")

    def __init__(
        self,
        most: int,
        *,
        total: Callable[[], int],
        alive: Callable[[str], int],
        names: Callable[[], Iterable[str]] | None,
        now_s: Callable[[], float],
    ) -> None:
        self.most = most
        self._total = total
        self._alive = alive
        self._names = names
        self._now_s = now_s
        self._taken: dict[str, int] = {}
        self._held: int | None = 0 if names is None else None
        self._counted_s = float("-inf")

    def take(self, name: str) -> bool:
        """Count one more thing under a name; return False, and count nothing, where the share is used up."""
        if self._held is None:
            if self._total() < self.most:
                return True
            self._count()
        elif self._held >= self.most and self._now_s() - self._counted_s >= _RECOUNT_S:
            self._count()
        assert self._held is not None
        if self._held >= self.most:
            return False
        self._held += 1
        if self._names is None:
            self._taken[name] = self._taken.get(name, 0) + 1
        return True

    def _count(self) -> None:
        """Count what exists now. Of what is under a name, a key without prefixes holds no more than it took."""
        self._counted_s = self._now_s()
        if self._names is not None:
            self._held = sum(map(self._alive, self._names()))
            return
        self._taken = {name: held for name, taken in self._taken.items() if (held := min(taken, self._alive(name)))}
        self._held = sum(self._taken.values())


class KeyShare(Share):
    """The share of one key, for the broker. Every method raises Overloaded where the share is used up."""

    __slots__ = ("_keys", "_percent", "_routers", "_topics", "_unsynced", "key")

    def __init__(
        self, key: Key, broker: Broker, settings: ServerSettings, *, unsynced: Unsynced, now_s: Callable[[], float]
    ) -> None:
        engine, own = settings.engine, key.prefixes is not None
        all_topics, all_routers = broker.topic_names, broker.router_names
        self.key = key
        self._unsynced = unsynced
        self._percent = settings.key_share_percent

        def topics() -> Iterable[str]:
            return filter(key.allows, all_topics)

        def routers() -> Iterable[str]:
            return filter(key.allows, all_routers)

        self._topics = Tally(
            settings.share_of(engine.topics_max),
            total=lambda: len(all_topics),
            alive=lambda name: name in all_topics,
            names=topics if own else None,
            now_s=now_s,
        )
        self._routers = Tally(
            settings.share_of(engine.routers_max),
            total=lambda: len(all_routers),
            alive=lambda name: name in all_routers,
            names=routers if own else None,
            now_s=now_s,
        )
        self._keys = Tally(
            settings.share_of(engine.idempotency_keys_max),
            total=lambda: broker.idempotency_keys_count,
            alive=broker.idempotency_keys,
            names=topics if own else None,
            now_s=now_s,
        )

    def take_topic(self, name: str) -> None:
        """Count a topic of this name that is about to be created."""
        self._take(self._topics, name, "engine.topics_max", "topics: delete some first")

    def take_router(self, name: str) -> None:
        """Count a router of this name that is about to be created."""
        self._take(self._routers, name, "engine.routers_max", "routers: delete some first")

    def take_key(self, topic: str) -> None:
        """Count one more idempotency key that a topic is about to remember."""
        advice = "idempotency keys: send the same request once some have passed, or shorten idempotency_window_ms"
        self._take(self._keys, topic, "engine.idempotency_keys_max", advice)

    def take_bytes(self, size: int, *, appended: int, synced: int) -> None:
        """Count payload that is about to be appended, while many bytes wait for a sync."""
        unsynced = self._unsynced
        if unsynced.is_full(synced):
            advice = "bytes that wait for a sync: send the same request later, and less at once"
            raise share_used_up(unsynced.bytes_max, advice, percent=self._percent, of="engine.pending_bytes_max")
        unsynced.add(size, appended + size)

    def _take(self, tally: Tally, name: str, of: str, advice: str) -> None:
        if tally.most and not tally.take(name):
            raise share_used_up(tally.most, advice, percent=self._percent, of=of)


class Shares:
    """The shares of all keys, which ``keys`` returns: a single one has no limit."""

    def __init__(
        self, settings: ServerSettings, *, keys: Callable[[], Sequence[Key]], now_s: Callable[[], float] = monotonic
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._now_s = now_s
        self._by_key: dict[str, KeyShare] = {}
        self._unsynced: dict[tuple[str, ...] | str, Unsynced] = {}
        self._by_prefix: dict[str, Unsynced] | None = None
        self._makers: dict[str, Key] = {}

    def begin(self, broker: Broker) -> None:
        """Count what this broker holds, and nothing of one before it; charge its copies."""
        self._by_key, self._unsynced, self._by_prefix, self._makers = {}, {}, None, {}
        broker.charge_copies(self.owner_of)

    def of(self, key: Key, broker: Broker) -> KeyShare | None:
        """Return the share of a key, or None where it has no limit."""
        if not self._settings.key_share_percent or len(self._keys()) < 2:
            return None
        share = self._by_key.get(key.id)
        if share is None:
            unsynced = self._unsynced_of(key)
            share = KeyShare(key, broker, self._settings, unsynced=unsynced, now_s=self._now_s)
            self._by_key[key.id] = share
        return share

    def keep(self, keys: Iterable[Key]) -> None:
        """Drop the tallies of other keys than these, and of those with other prefixes than before."""
        kept = set(keys)
        self._by_key = {key_id: share for key_id, share in self._by_key.items() if share.key in kept}
        owners = {_owner(key) for key in kept}
        self._unsynced = {owner: unsynced for owner, unsynced in self._unsynced.items() if owner in owners}
        self._makers = {router: key for router, key in self._makers.items() if key in kept}
        self._by_prefix = None

    def note_maker(self, router: str, key: Key, broker: Broker) -> None:
        """Note which key makes a router; the name of a router that is within some prefixes says it by itself."""
        if key.prefixes is None:
            self._makers[router] = key
            if len(self._makers) > 2 * len(broker.router_names) + _MAKERS_MIN:
                self._makers = {name: maker for name, maker in self._makers.items() if name in broker.router_names}

    def owner_of(self, router: Router) -> Unsynced | None:
        """Return the account of the owner of a router; None where it is not known, or has no limit."""
        if not self._settings.key_share_percent or len(self._keys()) < 2:
            return None
        maker = self._makers.get(router.name)
        return (
            self._within(router.name)
            or (self._unsynced_of(maker) if maker is not None else None)
            or self._within(router.source)
        )

    def _within(self, name: str) -> Unsynced | None:
        """Return the account of the longest prefix that a name is within."""
        by_prefix = self._by_prefix
        if by_prefix is None:
            found = [(prefix, self._unsynced_of(key)) for key in self._keys() for prefix in key.prefixes or ()]
            by_prefix = self._by_prefix = dict(sorted(found, key=lambda one: len(one[0]), reverse=True))
        return next((unsynced for prefix, unsynced in by_prefix.items() if name.startswith(prefix)), None)

    def _unsynced_of(self, key: Key) -> Unsynced:
        owner = _owner(key)
        unsynced = self._unsynced.get(owner)
        if unsynced is None:
            most = self._settings.share_of(self._settings.engine.pending_bytes_max)
            unsynced = self._unsynced[owner] = Unsynced(most)
        return unsynced


def _owner(key: Key) -> tuple[str, ...] | str:
    """Return the name of the account of a key."""
    return key.id if key.prefixes is None else tuple(sorted(key.prefixes))


def share_used_up(most: int, advice: str, *, percent: int, of: str) -> Overloaded:
    """Return the error of a key that has used up its share of a limit, with what to do about it."""
    return Overloaded(
        f"this key holds its share of {most} {advice}", limit="key_share_percent", max=percent, share=most, of=of
    )
