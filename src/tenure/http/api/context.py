"""The context of handlers: the broker after it is open, the settings, and whether the server is ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from tenure.broker.broker import Broker
from tenure.broker.open import Replay
from tenure.contract.replies import FeatureInfo
from tenure.contract.replies.cluster import ClusterInfo
from tenure.errors import Closed, NotLeader
from tenure.http.append.long_work import Turns
from tenure.http.append.request import AppendLimits
from tenure.http.settings import ServerSettings

if TYPE_CHECKING:
    from tenure.http.api.prometheus import Exposition
    from tenure.http.api.shares import Shares

__all__ = ["Cluster", "Context"]


class Cluster(Protocol):
    """The servers that share this one's home, as this one sees them."""

    def info(self) -> ClusterInfo:
        """Return what is known now, without asking anybody."""

    @property
    def is_undecided(self) -> bool:
        """Whether nobody is known to lead, and that will not last: a request should wait for ``decided``."""

    async def decided(self) -> None:
        """Wait until somebody is known to lead, perhaps this server; only for a short time."""

    async def hand_over(self, to: str) -> None:
        """Give the lead to the server at a URL, or to any where it is empty; return once this one leads no more.

        Raises NotLeader where this server does not lead, Conflict where nobody follows closely enough to take over.
        """

    async def check_readers(self, features: Sequence[FeatureInfo]) -> None:
        """Raise Conflict where a server that lives could not read a log with these features, Overloaded where the
        store does not say who lives.
        """


class Context:
    """What the handlers of one server share. The server sets what comes later: the broker, the metrics, the document.

    ``draining`` turns readiness off while requests in flight are still answered.
    """

    def __init__(
        self, broker: Broker | None = None, *, settings: ServerSettings | None = None, replay: Replay | None = None
    ) -> None:
        self._broker = broker
        #: Whether there is a broker.
        self.is_open = broker is not None
        self.settings = settings or ServerSettings()
        self.replay = replay
        self.draining = False
        self.exposition: Exposition | None = None
        self.shares: Shares | None = None
        self.openapi: Callable[[], bytes] | None = None
        #: Set where this server shares its home with others.
        self.cluster: Cluster | None = None
        self.append_limits = _append_limits(self.settings)
        self.turns = Turns(self.settings.limits.turn_ms, pressed=self._is_pressed)
        self.extras: dict[str, Any] = {}
        self._started = monotonic()
        self._started_ms = time_ns() // 1_000_000

    @property
    def broker(self) -> Broker:
        """The broker. Raises NotLeader where another server leads the log, Closed (``not_ready``) while the log is
        still being replayed.
        """
        if self._broker is None:
            self.check_leads()
            progress = self.replay.as_dict() if self.replay is not None else {}
            raise Closed("the log is being replayed: try again shortly", code="not_ready", **progress)
        return self._broker

    def check_leads(self) -> None:
        """Raise NotLeader where this server follows another, or waits for one."""
        if self.cluster is None or (info := self.cluster.info()).role == "leader":
            return
        where = f"send this to {info.leader}" if info.leader else "nobody is known to lead yet; try again shortly"
        raise NotLeader(f"this server does not lead: {where}. Nothing happened.", leader=info.leader, epoch=info.epoch)

    def set_broker(self, broker: Broker | None) -> None:
        """Set the broker once requests can be served; None while another server leads."""
        self._broker, self.is_open = broker, broker is not None
        if broker is not None and self.shares is not None:
            self.shares.begin(broker)

    def _is_pressed(self) -> bool:
        return self._broker is not None and self._broker.waits_for_disk

    @property
    def topics_count(self) -> int:
        """The number of topics."""
        return len(self.broker.topic_names)

    @property
    def started_ms(self) -> int:
        """The wall time at which this server was made: it never changes, whatever becomes of the clock."""
        return self._started_ms

    @property
    def uptime_ms(self) -> int:
        """The time since this server was made, in ms."""
        return int((monotonic() - self._started) * 1000)


def _append_limits(settings: ServerSettings) -> AppendLimits:
    engine, limits = settings.engine, settings.limits
    return AppendLimits(
        records_max=engine.records_max,
        record_bytes_max=engine.record_bytes_max,
        append_fields_bytes_max=limits.append_fields_bytes_max,
        record_fields_bytes_max=limits.record_fields_bytes_max,
        record_fields_max=limits.record_fields_max,
        append_whole_bytes_max=limits.append_whole_bytes_max,
    )
