"""From a delivered job to its settled verdict."""
