"""The console: a page that shows the running broker. See `docs/design/console.md`."""
