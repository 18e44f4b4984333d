"""CatchingUp: a topic has more in its past than one step folds."""

from __future__ import annotations

from tenure.errors import Overloaded

__all__ = ["CatchingUp"]


class CatchingUp(Overloaded):
    """Many leases, delays or TTLs of a topic ended together: the broker works through them, then takes the command.

    The broker keeps the command until then. Where it cannot, the caller sends the same request later.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"many jobs of {topic!r} expired together, and the broker is working through them: "
            "send the same request again in a second",
            topic=topic,
        )
        self.topic = topic
