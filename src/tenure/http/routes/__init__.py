"""Every route, by resource. The order matters only where two patterns fit one path, and none do."""

from tenure.http.routes import meta, records, routers, topics

__all__ = ["ROUTES"]

ROUTES = [*meta.ROUTES, *topics.ROUTES, *records.ROUTES, *routers.ROUTES]
