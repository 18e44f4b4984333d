"""Waiting callers of an open broker: long polls, cohorts, work streams, and the order in which they are served."""
