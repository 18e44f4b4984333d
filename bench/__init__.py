"""Benchmarks: each prints ratios measured in one run, with a calibration beside them."""
