"""Two versions of one program, told apart by what they know: the older, and one with a feature more.

The feature covers the events of routers, so `OLDER` stands for a version that could not read them: whatever is in a log
that it may open, no router is.
"""

from __future__ import annotations

from typing import Final

from tenure.core.events import KIND_OF, RouterDeleted, RouterMoved, RouterPut
from tenure.log.features import Feature

__all__ = ["GADGETS", "NEWER", "OLDER", "ROUTERS_KINDS"]

ROUTERS_KINDS: Final = frozenset(KIND_OF[event] for event in (RouterPut, RouterDeleted, RouterMoved))
GADGETS: Final = Feature("gadgets", "9.2.0", ROUTERS_KINDS)
OLDER: Final = (Feature("widgets", "9.1.0"),)
NEWER: Final = (*OLDER, GADGETS)
