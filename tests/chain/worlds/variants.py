"""Broken variants of the chain: each takes one rule out of the product, and the worlds must notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

from tenure.chain import leadership, member, notes, space
from tenure.chain.catch_up import CatchUp
from tenure.chain.chain import Chain
from tenure.chain.home_upkeep import LeaderUpkeep
from tenure.chain.leadership import Leadership, Lost
from tenure.chain.link import Link
from tenure.chain.notes import Notes, save_notes
from tenure.chain.place import Place, Step
from tenure.errors import NotLeader
from tenure.log.disk import Disk
from tenure.objects.retrying import Created, RetryingStore
from tenure.objects.store import Bytes, ObjectExists, ObjectMissing, OutcomeUnknown, StoreRefused

__all__ = ["VARIANTS", "Variant", "unknown_is_mine", "verdict_without_look"]

Patch = tuple[object, str, Any]


class Variant(NamedTuple):
    """What is broken, and the traits of the worlds that are to show it."""

    patches: tuple[Patch, ...]
    traits: tuple[str, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, broken in self.patches:
                stack.enter_context(mock.patch.object(target, name, broken))
            yield


async def _taken_is_mine(self: RetryingStore, key: str, data: Bytes, limit_bytes: int) -> Created:
    with suppress(ObjectExists):
        await self.store.put_new(key, data)
    return Created(True)


async def _taken_is_anothers(self: RetryingStore, key: str, data: Bytes, limit_bytes: int) -> Created:
    try:
        await self.store.put_new(key, data)
    except ObjectExists:
        return Created(False)
    return Created(True)


_create_once = RetryingStore._create_once


async def _empty_is_anothers(self: RetryingStore, key: str, data: Bytes, limit_bytes: int) -> Created:
    try:
        return await _create_once(self, key, data, limit_bytes)
    except OutcomeUnknown as error:
        if isinstance(error.__context__, ObjectMissing):
            return Created(False)
        raise


async def unknown_is_mine(self: RetryingStore, key: str, data: Bytes, *, limit_bytes: int, **options: Any) -> Created:
    try:
        return await self._create_once(key, data, limit_bytes)
    except (OutcomeUnknown, StoreRefused):
        return Created(True)


async def _always_denied(self: Leadership, data: bytes) -> Lost:
    return NotLeader("another process has taken over")


_verdict = Leadership._verdict


async def verdict_without_look(self: Leadership, data: bytes) -> Lost:
    async def no_look(epoch: int) -> bool:
        return False

    with mock.patch.object(self.chain, "is_freed", no_look):
        return await _verdict(self, data)


async def _verdict_without_directory(self: Leadership, data: bytes) -> Lost:
    link = Link.unpack(data, "")
    other = link._replace(directory=bytes(16)) if link.is_fence else link
    return await _verdict(self, other.pack())


async def _no_look_after_fence(chain: Chain, place: Place, data: bytes) -> None:
    """Lead without a look."""


_save = LeaderUpkeep.save


async def _save_without_note(self: LeaderUpkeep, position: Any, kept: Notes) -> None:
    with mock.patch.object(self._notes, "save"):
        await _save(self, position, kept)


def _save_without_nonce(disk: Disk, kept: Notes) -> None:
    if kept.nonces and kept.nonces[-1] != kept.leader:
        kept = msgspec.structs.replace(kept, nonces=kept.nonces[:-1])
    save_notes(disk, kept)


_apply = CatchUp._apply


def _apply_without_own(self: CatchUp, step: Step, kept: Notes) -> None:
    if step.link.is_fence or not kept.owns(step.link.nonce):
        _apply(self, step, kept)


def _with_fence(count: int) -> Iterator[range]:
    yield range(count + 1)


VARIANTS: Final[dict[str, Variant]] = {
    "a taken slot is mine": Variant(((RetryingStore, "_create_once", _taken_is_mine),), ("join", "release")),
    "a taken slot is another's, unread": Variant(
        ((RetryingStore, "_create_once", _taken_is_anothers), (Leadership, "_verdict", _always_denied)), ("lossy",)
    ),
    "409 on an empty key is another's": Variant(
        ((RetryingStore, "_create_once", _empty_is_anothers), (Leadership, "_verdict", _always_denied)), ("lossy",)
    ),
    "no look for the mark after a fence": Variant(
        ((leadership, "_check_fence", _no_look_after_fence),), ("collect", "shadow")
    ),
    "fences are collected too": Variant(((space, "_portions", _with_fence),), ("collect", "memory")),
    "a link is answered before it is committed": Variant(
        ((RetryingStore, "create_until_known", unknown_is_mine),), ("lossy", "late")
    ),
    "the tail is shipped although another directory led": Variant(
        ((Notes, "owns", lambda self, nonce: True),), ("join", "release")
    ),
    "no look after a lapse": Variant(((Leadership, "_had_lapse", lambda self: False),), ("collect", "memory")),
    "the nonce is not saved before the fence": Variant(
        (
            (member, "save_notes", _save_without_nonce),
            (notes, "save_notes", _save_without_nonce),
        ),
        ("lossy", "slow"),
    ),
    "an own fence says that nothing changed": Variant(
        ((Leadership, "_verdict", _verdict_without_directory),), ("memory",)
    ),
    "the place is not noted before an epoch is freed": Variant(
        ((LeaderUpkeep, "save", _save_without_note),), ("collect", "long", "ambush")
    ),
    "links of own epochs are not compared": Variant(((CatchUp, "_apply", _apply_without_own),), ("memory",)),
}
