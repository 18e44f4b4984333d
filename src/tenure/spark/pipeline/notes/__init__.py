"""The notes of runs: the figures of a run, the note that it keeps of itself, and the history of all runs."""
