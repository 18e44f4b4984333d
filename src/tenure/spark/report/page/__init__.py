"""The page of a report: its sections, findings, plots and style."""
