"""Every limit and time of a log's home, in one place."""

from __future__ import annotations

import msgspec

from tenure.chain.link import GRANT_MS_MAX
from tenure.errors import Invalid
from tenure.limits import MIB, check_limits

__all__ = ["ChainSettings"]


class ChainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of the chain, of its one leader and of its followers."""

    link_bytes_max: int = 8 * MIB
    """A link holds at most this many bytes of batches, and one batch however large it is."""
    link_interval_ms: int = 0
    """The least time between two links: the bill follows their number, and every durable answer waits for one."""
    link_object_bytes_max: int = 4096 * MIB
    """The largest link that is read."""
    lapse_ms: int = 1_500
    """After this long without a link, by either clock, the next one counts only if its epoch was not freed meanwhile:
    the machine may have been suspended, or restored from a snapshot.
    """
    prove_ms: int = 10_000
    """How often a leader looks whether its last link is still there and its next slot still free."""
    beat_ms: int = 500
    """How often a leader that may be followed sends a link although nothing was written."""
    grant_ms: int = 1_500
    """How long after it sent its last committed link such a leader answers what is not committed. Its links say so, and
    a follower waits as long before it takes over, whatever is set for itself.
    """
    poll_ms: int = 100
    """How often a follower looks for the next link; four times as often while records come."""
    hint_ms: int = 5_000
    """How often a leader writes that it is alive."""
    silence_ms: int = 15_000
    """How long another directory's leader must have been silent before this one takes over."""
    place_ms: int = 5_000
    """How often a leader notes beside its log how far the chain goes, which is where its next start begins to read."""
    epoch_links_max: int = 100_000
    """After this many links a leader begins another epoch by itself, because only links of closed epochs are freed."""
    keep_ms: int = 86_400_000
    """The least age, by the store's clock, of what is deleted from a home."""
    reads_max: int = 32
    """Links read at once while catching up."""
    call_attempts_max: int = 8
    """Attempts of one store call whose outcome is unknown, before opening fails. A link under way has no such limit."""
    backoff_ms: int = 10
    """The first wait after a failure; it doubles, with full jitter."""
    backoff_ms_max: int = 2_000
    """The longest wait between two attempts."""

    def __post_init__(self) -> None:
        check_limits(self, zero={"link_interval_ms", "lapse_ms", "backoff_ms"}, most={"grant_ms": GRANT_MS_MAX})
        if self.keep_ms <= self.lapse_ms:
            raise Invalid(
                "keep_ms must be more than lapse_ms: links of a leader that stood still would be freed unseen"
            )
        if self.grant_ms < 2 * self.beat_ms:
            raise Invalid("grant_ms must be at least twice beat_ms: one slow beat would end the grant")
        if self.silence_ms <= 2 * self.hint_ms:
            raise Invalid("silence_ms must be more than twice hint_ms: one lost hint would look like a dead leader")
