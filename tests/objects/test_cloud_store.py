"""A cloud store whose client or service misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import obstore
import pytest
from obstore import exceptions

from tenure.objects.store import ObjectExists, OutcomeUnknown, open_store

KEYS = ["data/a", "data/b", "data/c"]


def one_by_one(fail: Callable[[], Exception]) -> Any:
    """Deletes of a service without bulk deletes: the client stops at the first key that is not there."""
    real = obstore.delete_async

    async def delete(store: Any, paths: Sequence[str]) -> None:
        for path in paths:
            if path.endswith("missing"):
                raise fail()
            await real(store, path)

    return delete


@pytest.mark.parametrize("missing", [FileNotFoundError, lambda: exceptions.NotFoundError("no such key")])
async def test_a_key_that_is_not_there_keeps_no_other_from_being_deleted(
    monkeypatch: pytest.MonkeyPatch, missing: Callable[[], Exception]
):
    """Naive: the page counts as deleted with its first missing key, and what follows it stays for ever."""
    store = open_store("memory://")
    for key in KEYS:
        await store.put_new(key, b"x")
    monkeypatch.setattr(obstore, "delete_async", one_by_one(missing))
    await store.delete(["data/missing", *KEYS[:2], "other-missing", KEYS[2]])
    assert [info.key async for info in store.list("")] == []


async def test_a_delete_whose_outcome_is_unknown_is_reported_so(monkeypatch: pytest.MonkeyPatch):
    store = open_store("memory://")
    monkeypatch.setattr(obstore, "delete_async", one_by_one(lambda: exceptions.GenericError("timed out")))
    with pytest.raises(OutcomeUnknown):
        await store.delete(["data/missing"])


@pytest.mark.parametrize("error", [exceptions.AlreadyExistsError, exceptions.PreconditionError])
async def test_a_condition_that_failed_means_that_the_key_is_taken(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
):
    """Naive: Azure's 412 is an unknown outcome, and the key is created again and again instead of being read."""

    async def put(*args: Any, **options: Any) -> None:
        raise error("the condition was not met")

    monkeypatch.setattr(obstore, "put_async", put)
    with pytest.raises(ObjectExists):
        await open_store("memory://").put_new("a", b"x")
