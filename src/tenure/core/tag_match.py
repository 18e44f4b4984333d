"""Tag conditions of deletes, redrives and routers: an exact tag, or a prefix.

The wire has three spellings — ``"x"``, ``["tag", "Eq", "x"]`` and ``["tag", "Glob", "x*"]`` — and a glob is only ever
a prefix: both kinds are then a walk over neighbours in the tag index, at a cost that follows the matches.
"""

from __future__ import annotations

import msgspec

from tenure.contract.names import TAG_BYTES_MAX, check_tag, describe_value
from tenure.errors import Invalid

__all__ = ["Match", "parse_match"]

_WANTED = 'match must be "x", ["tag","Eq","x"] or ["tag","Glob","x*"]'


class Match(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A tag to equal or a prefix to begin with: exactly one of ``exact`` and ``prefix`` is set."""

    exact: str | None = None
    prefix: str | None = None

    def matches(self, tag: str | None) -> bool:
        """Return whether a record with this tag is meant; one without a tag never is."""
        if tag is None:
            return False
        if self.prefix is not None:
            return tag.startswith(self.prefix)
        return tag == self.exact


def parse_match(value: object, *, bytes_max: int = TAG_BYTES_MAX) -> Match:
    """Return the match that a request's ``match`` stands for, or raise Invalid.

    A bare string is a tag as it stands, an asterisk in it included.
    """
    if isinstance(value, str):
        return Match(exact=check_tag(value, bytes_max=bytes_max))
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise Invalid(f"{_WANTED}; got {describe_value(value)}")
    field, operator, operand = value
    if field != "tag":
        raise Invalid(f'{_WANTED}: only "tag" can be matched, not {describe_value(field)}')
    if operator == "Eq":
        return Match(exact=check_tag(operand, bytes_max=bytes_max))
    if operator == "Glob":
        return Match(prefix=_parse_glob(operand, bytes_max=bytes_max))
    raise Invalid(f'{_WANTED}: the operator is "Eq" or "Glob", not {describe_value(operator)}')


def _parse_glob(glob: object, *, bytes_max: int) -> str:
    """Return the prefix before the one asterisk, which must come last; ``"*"`` alone means every tagged record."""
    if not isinstance(glob, str) or not glob.endswith("*") or glob.count("*") > 1:
        raise Invalid(f"a Glob must end in its one *; got {describe_value(glob)}")
    return check_tag(glob[:-1], bytes_max=bytes_max)
