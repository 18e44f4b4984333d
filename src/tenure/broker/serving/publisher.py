"""Publishing lifecycle events of jobs to subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.broker.serving.streams import Subscription
from tenure.contract.replies import Lifecycle
from tenure.core.events import Event
from tenure.core.lifecycle import expired, translate
from tenure.core.state.lease import Ended
from tenure.core.state.topic import Topic
from tenure.errors import TenureError

if TYPE_CHECKING:
    from tenure.broker.serving.loop import ServingLoop

__all__ = ["Publisher"]


class Publisher:
    """The subscriptions of a broker; the engine reports to it only while there are any."""

    def __init__(self, serving: ServingLoop) -> None:
        self._serving = serving
        self._subscriptions: list[Subscription] = []

    def subscribe(self, topic: str | None) -> Subscription:
        """Return a subscription to the life of jobs, of one topic or of all."""
        rows_max = self._serving.engine.settings.subscriber_events_max
        subscription = Subscription(topic, rows_max=rows_max, on_close=self._unsubscribe)
        if not self._subscriptions:
            self._serving.follow(self._publish)
        self._subscriptions.append(subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self._serving.unfollow(self._publish)

    def _publish(self, event: Event) -> None:
        self._serving.report_ended()
        row = translate(self._serving.engine.state, event)
        if row is not None:
            self._offer(row)

    def expire(self, topic: Topic, ended: Ended) -> None:
        """Publish that a lease expired."""
        if self._subscriptions:
            self._offer(expired(self._serving.engine.state, topic, ended))

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
