"""Commands that run Spark."""
