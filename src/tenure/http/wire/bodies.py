"""Request bodies in memory: two bounded pools, and how much of each one caller may hold.

A small body draws on a pool of its own, so that large ones, half sent and left lying, never turn a small write away. A
body that grows beyond the small size moves to the other pool whole.
"""

from __future__ import annotations

from tenure.errors import Overloaded
from tenure.http.wire.limits import WireLimits

__all__ = ["Bodies", "Charge"]


class Pool:
    """A bounded number of bytes, and how many of them each account holds. ``names`` are the settings of both limits."""

    __slots__ = ("_names", "by_account", "bytes_max", "held_bytes", "per_caller_max")

    def __init__(self, bytes_max: int, per_caller_max: int, *, names: tuple[str, str]) -> None:
        self.held_bytes = 0
        self.by_account: dict[str, int] = {}
        self.bytes_max = bytes_max
        self.per_caller_max = per_caller_max
        self._names = names

    def check(self, account: str, size: int) -> None:
        """Raise Overloaded, which names the setting, where an account may not take that many bytes more."""
        if self.held_bytes + size > self.bytes_max:
            raise _overloaded("all callers together", self._names[0], self.bytes_max)
        if self.by_account.get(account, 0) + size > self.per_caller_max:
            raise _overloaded("this caller", self._names[1], self.per_caller_max)


class Bodies:
    """Both pools of a server."""

    __slots__ = ("large", "small", "small_body_bytes")

    def __init__(self, limits: WireLimits) -> None:
        self.small_body_bytes = limits.small_body_bytes
        self.small = Pool(
            limits.small_bodies_bytes_max,
            limits.small_bodies_bytes_per_caller_max,
            names=("limits.small_bodies_bytes_max", "limits.small_bodies_bytes_per_caller_max"),
        )
        self.large = Pool(
            limits.bodies_bytes_max,
            limits.bodies_bytes_per_caller_max,
            names=("limits.bodies_bytes_max", "limits.bodies_bytes_per_caller_max"),
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies in memory."""
        return self.small.held_bytes + self.large.held_bytes


class Charge:
    """The bytes of one body, charged to ``account`` from its first part until `release`.

    ``announced_bytes`` is its declared length, 0 where there is none. Raises Overloaded for a large one that has no
    room now.
    """

    __slots__ = ("_account", "_bodies", "_pool", "held_bytes")

    def __init__(self, bodies: Bodies, account: str, *, announced_bytes: int) -> None:
        self.held_bytes = 0
        self._bodies = bodies
        self._account = account
        if announced_bytes <= bodies.small_body_bytes:
            self._pool = bodies.small  # it comes at once, so its first part finds out whether there is room
        else:
            self._pool = bodies.large
            self._pool.check(account, announced_bytes)

    def grow(self, size: int) -> None:
        """Charge a further part. Raises Overloaded; what was charged before stays. Every request with a body comes
        through here, so it is one step.
        """
        bodies, pool, account = self._bodies, self._pool, self._account
        if pool is bodies.small and self.held_bytes + size > bodies.small_body_bytes:
            pool = bodies.large
            pool.check(account, self.held_bytes + size)
            size += self.held_bytes
            self.release()
            self._pool = pool
        held_bytes, own_bytes = pool.held_bytes + size, pool.by_account.get(account, 0) + size
        if held_bytes > pool.bytes_max or own_bytes > pool.per_caller_max:
            pool.check(account, size)
        pool.held_bytes = held_bytes
        pool.by_account[account] = own_bytes
        self.held_bytes += size

    def release(self) -> None:
        """Take the whole body off its account; a second time changes nothing. An account that holds nothing is
        forgotten.
        """
        held = self.held_bytes
        if held:
            self.held_bytes = 0
            pool = self._pool
            pool.held_bytes -= held
            left = pool.by_account.pop(self._account) - held
            if left:
                pool.by_account[self._account] = left


def _overloaded(who: str, limit: str, maximum: int) -> Overloaded:
    return Overloaded(
        f"the bodies of {who} fill the memory there is for them: send this request again later",
        limit=limit,
        max=maximum,
    )
