"""The /v0 contract on the wire: a thin layer over the broker."""
