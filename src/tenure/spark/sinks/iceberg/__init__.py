"""Iceberg tables as sinks: with Iceberg's connector, and without it."""
