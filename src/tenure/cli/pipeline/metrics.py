"""The figures of a pipeline in the text form of Prometheus: a run that ends has no page that could be scraped."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.cli.screen import Payload

__all__ = ["metrics_of"]

_FIGURES = {
    "entries": "Entries that the last run which wrote something read.",
    "rows": "Rows that it stored in the table.",
    "malformed": "Entries of it that did not fit the schema.",
    "quarantined": "Rows that it set aside.",
    "dropped": "Rows that expectations dropped.",
    "duplicates": "Rows that deduplication left out.",
}


def metrics_of(found: Payload) -> str:
    """Return what `tenure pipeline status` found, as metrics; a value that is not known is left out."""
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: Payload) -> Iterator[str]:
    label, last, wrote = f'{{pipeline="{found["pipeline"]}"}}', found["last_run"], found["last_written"]
    behind = found.get("lag_batches", found.get("lag_records"))
    values: list[tuple[str, str, float | None]] = [
        ("unbalanced_ranges", "Ranges that did not balance and wait for an operator.", _waiting(found)),
        (
            "lag_batches",
            "Batches, or records, that the table lacks.",
            behind,
        ),
        ("lag_seconds", "Age of the first of them.", None if found["lag_ms"] is None else found["lag_ms"] / 1000),
    ]
    if last is not None:
        values.append(("last_run_failed", "Whether the last run failed.", int(last["state"] == "failed")))
        values.append(("last_run_timestamp_seconds", "Time of its last note.", last["updated_ms"] / 1000))
    if wrote is not None:
        values += [(name, about, wrote["figures"][name]) for name, about in _FIGURES.items()]
        values.append(("unchecked_terms", "Terms of its balance without a count.", len(wrote["figures"]["unchecked"])))
    for name, about, value in values:
        if value is not None:
            yield from _head(name, about)
            yield f"tenure_pipeline_{name}{label} {value}"
    left_out = {} if wrote is None else {stage: n for stage, n in wrote["balance"].items() if stage != "rows"}
    if any(number is not None for number in left_out.values()):
        yield from _head("left_out", "What each of its stages left out, below 0 what it added; rows are the rest.")
        for stage, number in left_out.items():
            if number is not None:
                yield f'tenure_pipeline_left_out{{pipeline="{found["pipeline"]}",stage="{stage}"}} {number}'


def _head(name: str, about: str) -> Iterator[str]:
    yield f"# HELP tenure_pipeline_{name} {about}"
    yield f"# TYPE tenure_pipeline_{name} gauge"


def _waiting(found: Payload) -> int:
    return sum(not each["accepted"] for each in found["unbalanced"])
