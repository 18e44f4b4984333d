"""The command line: `tenure`. The engine never imports it."""
