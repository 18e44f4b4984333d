"""From a request to a result: routes, keys, bodies, replies, documentation."""
