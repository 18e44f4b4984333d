"""The name of a topic, with the prefixes of its routers."""

from __future__ import annotations

from tenure.contract.names import check_topic_name
from tenure.errors import Invalid

__all__ = ["InvalidTopic", "check_topic", "full_topic"]


class InvalidTopic(Invalid, ValueError):
    """A topic is empty or no legal name: name it otherwise. A ValueError too, which FastStream's brokers raise."""


def check_topic(topic: str) -> str:
    """Return a legal name unchanged. Raises InvalidTopic."""
    try:
        return check_topic_name(topic)
    except Invalid as error:
        raise InvalidTopic(error.message, code=error.code, **error.detail) from None


def full_topic(prefix: str, topic: str) -> str:
    """Return the name in Redis. Raises InvalidTopic."""
    return check_topic(f"{prefix}{topic}")
