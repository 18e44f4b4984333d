"""`python -m tenure` is the `tenure` command."""

from tenure.cli.main import main

main()
