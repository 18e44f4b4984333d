"""``Anomaly``: the one way in which a life says that something happened which must never happen."""

from __future__ import annotations

__all__ = ["Anomaly"]


class Anomaly(BaseException):
    """A rule was broken; ``kind`` names the rule.

    Not an Exception, so that no handler of the broker can swallow it.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
