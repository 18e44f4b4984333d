"""Clients: `Client` for plain code, `AsyncClient` for an event loop; the same calls on both."""

from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings

__all__ = ["AsyncClient", "ClientSettings"]
