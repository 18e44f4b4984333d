"""Broken variants of members: each takes one rule out of the product, and the lives must notice."""

from __future__ import annotations

from typing import Final

from tenure.broker.durability.committer import Committer
from tenure.objects.retrying import RetryingStore
from tests.chain.worlds.variants import Variant, unknown_is_mine

__all__ = ["VARIANTS"]

VARIANTS: Final[dict[str, Variant]] = {
    "a grant never ends": Variant(((Committer, "has_grant", lambda self: True),), ("shadow",)),
    "a link is answered before it is committed": Variant(
        ((RetryingStore, "create_until_known", unknown_is_mine),), ("lossy", "late")
    ),
}
