"""A report on what queues did, from the lifecycle events that were exported: tables, and a page to look at."""
