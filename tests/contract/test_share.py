"""Bytes that wait for a sync: counted until the broker has synced past their mark, in a bounded number of marks."""

from __future__ import annotations

from tenure.contract.share import Unsynced


def test_bytes_are_held_until_the_broker_has_synced_up_to_their_mark() -> None:
    account = Unsynced(100)
    account.add(60, 60)
    account.add(30, 200)
    assert [account.held(synced) for synced in (0, 59, 60, 199, 200)] == [90, 90, 30, 30, 0]


def test_an_account_is_full_from_its_limit_on_until_a_sync() -> None:
    account = Unsynced(100)
    account.add(99, 99)
    assert not account.is_full(0)
    account.add(1, 100)
    assert account.is_full(0)
    assert not account.is_full(99)


def test_without_a_limit_nothing_is_counted() -> None:
    account = Unsynced(0)
    account.add(1_000, 1_000)
    assert (account.held(0), account.is_full(0)) == (0, False)


def test_many_small_additions_take_few_marks_and_none_is_forgotten_early() -> None:
    account = Unsynced(1 << 20)
    for number in range(1, 100_001):
        account.add(10, 10 * number)
    assert len(account._marks) < 1_100
    held = [account.held(synced) for synced in range(0, 1_000_001, 50_000)]
    assert all(left >= 1_000_000 - synced for left, synced in zip(held, range(0, 1_000_001, 50_000), strict=True))
    assert held[-1] == 0
