"""From a buffer into a table without Spark."""
