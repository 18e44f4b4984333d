"""HTTP/2 on a connection, on top of the ``h2`` library."""
