"""Many puts and acks in few requests."""
