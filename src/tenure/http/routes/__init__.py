"""Every route, by resource. The order matters only where two patterns fit one path, and none do."""

from tenure.http.routes import (
    cluster,
    console,
    events,
    inspect,
    meta,
    queues,
    records,
    routers,
    topics,
    upgrade,
    watch,
    work,
    workers,
)

__all__ = ["ROUTES"]

ROUTES = [
    *meta.ROUTES,
    *cluster.ROUTES,
    *upgrade.ROUTES,
    *topics.ROUTES,
    *records.ROUTES,
    *routers.ROUTES,
    *queues.ROUTES,
    *work.ROUTES,
    *workers.ROUTES,
    *inspect.ROUTES,
    *events.ROUTES,
    *watch.ROUTES,
    *console.ROUTES,
]
