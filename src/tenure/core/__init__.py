"""The pure heart: topics, leases and dead letters as a fold over events. No I/O, no clock, no randomness."""
