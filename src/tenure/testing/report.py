"""`HistoryReport`: the anomalies that ``check_history`` found, by kind."""

from __future__ import annotations

import msgspec

__all__ = ["HistoryReport"]

_SHOWN_MAX = 8


class HistoryReport(msgspec.Struct, frozen=True):
    """The result of a check. Everything but the three totals is an anomaly.

    ``lost_*`` are payloads whose produce was acknowledged and that were never seen again, by their place in the order
    of acknowledged produces: a lost prefix points to a log cut at its start, a postfix to a lost tail. ``vanished``
    were delivered but never acked, and are not there at the end. ``torn`` are calls of which only a part was carried
    out, ``misburied`` dead letters before or after their last delivery. All but the lost and vanished are sentences.
    """

    produced: int = 0
    delivered: int = 0
    acked: int = 0
    lost_prefix: list[str] = []
    lost_middle: list[str] = []
    lost_postfix: list[str] = []
    vanished: list[str] = []
    unexpected: list[str] = []
    duplicated: list[str] = []
    undone: list[str] = []
    overlapping: list[str] = []
    out_of_order: list[str] = []
    torn: list[str] = []
    misburied: list[str] = []

    @property
    def lost(self) -> list[str]:
        """Everything lost, in the order it was produced."""
        return self.lost_prefix + self.lost_middle + self.lost_postfix

    @property
    def anomalies(self) -> dict[str, list[str]]:
        """The anomalies by kind; only kinds that occurred."""
        kinds = (
            ("lost prefix", self.lost_prefix),
            ("lost middle", self.lost_middle),
            ("lost postfix", self.lost_postfix),
            ("vanished", self.vanished),
            ("unexpected", self.unexpected),
            ("duplicated without redelivery", self.duplicated),
            ("undone ack", self.undone),
            ("overlapping leases", self.overlapping),
            ("out of order", self.out_of_order),
            ("torn call", self.torn),
            ("dead letter too early or too late", self.misburied),
        )
        return {kind: found for kind, found in kinds if found}

    @property
    def ok(self) -> bool:
        """Whether there is no anomaly."""
        return not self.anomalies

    def __str__(self) -> str:
        head = f"{self.produced} acknowledged produces, {self.delivered} deliveries, {self.acked} acks"
        if self.ok:
            return f"{head}: no anomaly"
        lines = [f"{head}:"]
        for kind, found in self.anomalies.items():
            lines.append(f"  {kind}: {len(found)}")
            lines += [f"    {item}" for item in found[:_SHOWN_MAX]]
            if len(found) > _SHOWN_MAX:
                lines.append(f"    … and {len(found) - _SHOWN_MAX} more")
        return "\n".join(lines)
