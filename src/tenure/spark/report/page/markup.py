"""HTML for the page, with escaping: names, reasons and nodes are text from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tenure.spark.report.page.units import shorten

__all__ = ["Html", "card", "listing", "tag", "text", "words"]


class Html(str):
    """Markup that is ready for the page, unlike a plain string, which is escaped."""

    __slots__ = ()


def text(value: object, length_max: int = 60) -> Html:
    """Return a value as text: escaped, on one line, without control characters, and cut; all of it in a tooltip."""
    if isinstance(value, Html):
        return value
    whole = str(value)
    short = shorten(whole, length_max)
    if len(whole) <= length_max:
        return Html(escape(short))
    return tag("span", short, title=shorten(whole, 200))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return an element. Attribute names are given as ``class_`` and ``data_x``; those that are None are left out."""
    spelled = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(child if isinstance(child, Html) else escape(str(child)) for child in children)
    return Html(f"<{name}{spelled}>{inside}</{name}>")


def words(parts: Iterable[object], joint: str = "") -> Html:
    """Join parts."""
    return Html(joint.join(part if isinstance(part, Html) else escape(str(part)) for part in parts))


def card(title: str, *body: object, about: str = "", anchor: str = "", wide: bool = False) -> Html:
    """Return a section of the page: its title, one sentence about it, and its content."""
    lead = [tag("p", about, class_="about")] if about else []
    return tag("section", tag("h2", title), *lead, *body, class_="card wide" if wide else "card", id=anchor or None)


def listing(heads: Sequence[str], rows: Iterable[Sequence[object]], *, more: str = "") -> Html:
    """Return a table; a head that ends in ``#`` is a column of numbers."""
    numbers = [head.endswith("#") for head in heads]
    named = [head.rstrip("#") for head in heads]
    top = words(tag("th", head, class_="n" if number else None) for head, number in zip(named, numbers, strict=True))
    body = words(
        tag(
            "tr",
            *(
                tag("td", text(cell), class_="n" if number else None, data_head=head)
                for cell, number, head in zip(row, numbers, named, strict=True)
            ),
        )
        for row in rows
    )
    table = tag("table", tag("thead", tag("tr", top)), tag("tbody", body))
    rest = [tag("p", more, class_="more")] if more else []
    return words([tag("div", table, class_="scroll"), *rest])
