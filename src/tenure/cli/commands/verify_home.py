"""The proof of a home, for `tenure home verify` and `tenure cluster verify`."""

from __future__ import annotations

from rich.console import Console

from tenure.chain.inspect import verify_home
from tenure.chain.settings import ChainSettings
from tenure.cli.main import OK
from tenure.cli.screen import Payload, Shown
from tenure.cli.words import count
from tenure.objects.background import background
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import open_store

__all__ = ["open_home", "show_verified", "verify_url"]

_SETTINGS = ChainSettings()


def open_home(url: str) -> RetryingStore:
    """Return the store at a URL, with retries. Raises Invalid for what is no URL of a store."""
    return RetryingStore(Metered(open_store(url), StoreMetrics()), _SETTINGS)


def verify_url(url: str) -> Shown:
    """Read and prove what a home holds. Raises NotFound where there is none, Corrupt where it is damaged."""
    found = background().run(verify_home(open_home(url), _SETTINGS))
    payload: Payload = {
        "home": url,
        "ok": True,
        "log_id": found.facts.log_id,
        "epoch": found.place.epoch,
        "last_batch": found.place.end.batch,
        "links": found.links,
        "fences": found.fences,
        "link_bytes": found.link_bytes,
        "segments": found.segments,
        "checkpoints": found.checkpoints,
    }
    return payload, OK


def show_verified(console: Console, payload: Payload) -> None:
    """Print what was proven as text."""
    epochs = count(payload["fences"], "epoch")
    console.print(f"{count(payload['links'], 'link')} in {epochs} follow each other")
    console.print(f"{count(payload['segments'], 'sealed segment')} and {count(payload['checkpoints'], 'checkpoint')}")
    console.print(f"everything up to batch {payload['last_batch']:,} is there: no problems found")
