"""The report on queues, from the exported lifecycle events: tables, and an HTML page."""
