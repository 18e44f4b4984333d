"""Salvage: copying the readable part of a damaged log into a new directory."""
