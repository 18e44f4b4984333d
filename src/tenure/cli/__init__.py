"""The command line: `tenure`. Needs the extra ``tenure[cli]``; the engine never imports it."""
