"""Commands that talk to a server or look at a data directory."""
