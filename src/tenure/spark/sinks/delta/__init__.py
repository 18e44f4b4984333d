"""Delta tables as sinks: with Delta's connector, and without it."""
