"""HTTP/1.1 on a connection."""
