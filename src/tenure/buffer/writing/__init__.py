"""Writing: the producer, which gathers entries, uploads batches and commits them."""
