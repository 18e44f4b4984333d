"""Every limit and deadline of the wire, in one place, each with its unit in its name."""

from __future__ import annotations

import msgspec

from tenure.limits import KIB, MIB

__all__ = ["WireLimits"]


class WireLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one peer, and of all of them together.

    Deadlines are kept by one coarse timer: a peer is cut between a deadline and ``2 * tick_ms`` later.
    """

    target_bytes_max: int = 8 * KIB
    """Path and query of one request; above it 414."""
    header_bytes_max: int = 32 * KIB
    """Names and values of one request's headers and trailers together; above it 431."""
    headers_max: int = 100
    """Header lines of one request; above it 431."""
    body_bytes_max: int = 64 * MIB
    """The body of an append; above it 413, before the rest is read."""
    command_bytes_max: int = 64 * KIB
    """The body of any other request; above it 413, before it is read. Tenure's own clients keep to the default."""
    small_body_bytes: int = 64 * KIB
    """A body up to this size, by its announced length or as far as it has come, is small: it has a pool of its own,
    and one that was refused at its head is passed over, so that the connection lives on.
    """
    small_bodies_bytes_max: int = 128 * MIB
    """Small bodies in memory over all connections; above it 429."""
    small_bodies_bytes_per_caller_max: int = 64 * MIB
    """Those of one caller: a key, or without keys an address."""
    bodies_bytes_max: int = 256 * MIB
    """All other bodies in memory over all connections; above it 429, before the rest is read."""
    bodies_bytes_per_caller_max: int = 128 * MIB
    """Those of one caller."""
    chunk_overhead_bytes_max: int = 64 * KIB
    """Bytes of a chunked body that are not its content, beyond eight for each byte of content."""
    append_fields_bytes_max: int = 64 * KIB
    """What the body of an append has outside of its records; above it 413."""
    record_fields_bytes_max: int = 8 * KIB
    """What a record has beside ``data`` and ``meta``; above it 400."""
    record_fields_max: int = 32
    """Fields of a record above 4 KiB, those that the server does not know included; above it 400."""
    append_whole_bytes_max: int = 512 * KIB
    """An append's body is decoded at once up to this; a larger one is read in turns, and so is one that is odd."""
    turn_ms: int = 1
    """How long such a body is read before everything else on the loop gets its turn; as long are large bodies read,
    on all connections together.
    """

    connections_max: int = 20_000
    """Connections at once, from their acceptance on; one more gets 503 and is closed."""
    silent_connections_max: int = 4_096
    """Connections that have not sent a whole request head yet, TLS handshakes among them; one more, and the oldest of
    them is cut. The same happens where there are ``connections_max``.
    """
    silent_connections_per_peer_max: int = 1_024
    """Those of one address."""
    pipeline_max: int = 32
    """Requests of one connection being answered at once; more wait, and reading is paused."""
    backlog: int = 2_048
    """Connections that the kernel holds until they are accepted."""
    share_ms: int = 1
    """How long requests are begun in one turn of the loop; beyond it callers are served by turns, in the order of the
    time that each has used.
    """
    accept_ms: int = 1
    """How long connections are accepted before everything else on the loop gets its turn."""

    header_ms: int = 10_000
    """From the first byte of a request to the end of its headers; also from connecting to the first byte."""
    body_grace_ms: int = 10_000
    body_bytes_per_s_min: int = 16 * KIB
    """Within any time as long as the grace a body must come at this rate, until all of it is there."""
    idle_ms: int = 75_000
    """A connection without a request is closed after this."""
    write_stall_ms: int = 30_000
    """Within any time as long as this a peer must take what waits for it at ``body_bytes_per_s_min``, or all of it."""
    write_buffer_bytes: int = 64 * KIB
    """Bytes kept for a slow reader before whoever sends has to wait."""
    unsent_bytes_max: int = 4 * MIB
    """Answers that one connection has not taken; above it no further request of it is started."""
    unsent_bytes_total_max: int = 128 * MIB
    """Answers that all connections have not taken; above it those are cut that have taken least for longest."""
    linger_ms: int = 2_000
    linger_bytes_max: int = 16 * MIB
    """After a refusal the peer may go on sending so long, so much, unheard: a reset would eat the answer."""
    linger_rest_ms: int = 20
    """What such peers send is thrown away for ``turn_ms`` at a time, for all of them together, and this long not."""
    refused_ms_per_s: int = 50
    """How much of the loop's time all may take together that is refused at the door, without a valid key or as no
    request, in the long run; beyond it their answers wait. Nobody else's do.
    """
    refused_burst_ms: int = 100
    """How much of it they may take at once: some hundreds of small requests."""
    refused_waiting_max: int = 1_024
    """How many such answers wait; one more, and the oldest of the address that has the most is cut."""
    tls_handshake_ms: int = 10_000
    tick_ms: int = 1_000
    """How often deadlines are looked at."""

    keepalive_idle_s: int = 15
    keepalive_interval_s: int = 5
    user_timeout_ms: int = 20_000
    """A silent peer is probed after the idle time, and is gone when nothing was acknowledged for the timeout: what a
    half-open worker holds is back after a heartbeat plus this.
    """

    h2_streams_max: int = 128
    """Requests of one HTTP/2 connection at once."""
    h2_window_bytes: int = 1 * MIB
    """What a peer may send on one stream, and on all streams, before it hears from us."""
    h2_control_frames_max: int = 1_000
    """Frames that carry no request and no content (resets, pings, settings, priorities, windows) allowed at once."""
    h2_control_frames_per_s: int = 100
    """How fast that allowance grows back; each response and each DATA frame sent gives back two."""
