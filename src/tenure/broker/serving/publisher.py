"""Publishing lifecycle events of jobs to subscriptions."""

from __future__ import annotations

from collections.abc import Callable

from tenure.broker.engine import Engine
from tenure.broker.serving.streams import Subscription
from tenure.contract.replies import Lifecycle
from tenure.core.events import Event
from tenure.core.lifecycle import expired, translate
from tenure.core.state.lease import Ended
from tenure.core.state.topic import Topic
from tenure.errors import TenureError

__all__ = ["Publisher"]


class Publisher:
    """The subscriptions of a broker; the engine reports to it only while there are any.

    ``report_ended`` reports the leases that have expired by now.
    """

    def __init__(self, engine: Engine, *, report_ended: Callable[[], None]) -> None:
        self._engine = engine
        self._report_ended = report_ended
        self._subscriptions: list[Subscription] = []

    def subscribe(self, topic: str | None) -> Subscription:
        """Return a subscription to the life of jobs, of one topic or of all."""
        rows_max = self._engine.settings.subscriber_events_max
        subscription = Subscription(topic, rows_max=rows_max, on_close=self._unsubscribe)
        if not self._subscriptions:
            self._engine.follow(self._publish)
        self._subscriptions.append(subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self._engine.unfollow(self._publish)

    def _publish(self, event: Event) -> None:
        self._report_ended()
        row = translate(self._engine.state, event)
        if row is not None:
            self._offer(row)

    def expire(self, topic: Topic, ended: Ended) -> None:
        """Publish that a lease expired."""
        if self._subscriptions:
            self._offer(expired(self._engine.state, topic, ended))

    def _offer(self, row: Lifecycle) -> None:
        for subscription in self._subscriptions:
            subscription.offer(row)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in list(self._subscriptions):
            subscription.close()

    def refuse(self, error: TenureError) -> None:
        """End all subscriptions with this error."""
        for subscription in list(self._subscriptions):
            subscription.refuse(error)
