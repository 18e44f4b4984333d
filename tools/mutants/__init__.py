"""Change the engine in small ways, one at a time, and see whether a test notices: `make test-mutants`."""
