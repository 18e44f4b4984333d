"""The state that events fold into: topics, queues, leases, what is remembered of callers, and its snapshot."""
