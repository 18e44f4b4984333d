"""The one history: what was acknowledged or led must lie on it, and what was denied must not."""

from __future__ import annotations

from tests.chain.model.explore import Violation
from tests.chain.model.links import ancestors, comparable, link, operations

__all__ = ["check_denied", "extend"]


def extend(top: int, number: int, denied: tuple[int, ...]) -> int:
    """Return the newest link of the history after a link was acknowledged, or its epoch was led."""
    if not comparable(number, top):
        lost = not (link(number).is_fence and link(top).is_fence)
        raise Violation("lost" if lost else "diverged", f"link {link(number)} beside {link(top)}")
    if number in ancestors(top):
        return top
    history = operations(number)
    if len(set(history)) < len(history):
        raise Violation("twice", f"one history has {history}")
    if happened := set(history).intersection(denied):
        raise Violation("denied", f"nothing changed was said of {happened}, and they happened")
    return number


def check_denied(top: int, numbers: tuple[int, ...]) -> None:
    """Check that operations of which "nothing changed" is said are not in the history."""
    if happened := set(numbers).intersection(operations(top)):
        raise Violation("denied", f"nothing changed was said of {happened}, which had happened")
