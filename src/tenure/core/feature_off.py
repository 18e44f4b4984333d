"""The refusal of a command that needs a feature which the log does not use yet."""

from __future__ import annotations

from tenure.errors import Conflict

__all__ = ["feature_off"]


def feature_off(feature: str) -> Conflict:
    """Return the error for a caller."""
    return Conflict(
        f"this needs the feature {feature}, which is off so that the version before the upgrade can be started again: "
        "call tenure upgrade finalize first. Nothing was changed.",
        code="feature_off",
        feature=feature,
    )
