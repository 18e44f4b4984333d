"""Tables that a range goes to exactly once."""
