"""Backups of a log: taken while it is in use, verified, and restored as a log of its own.

Start with :mod:`~tenure.backup.manifest` for what a backup is, then :mod:`~tenure.backup.take` and
:mod:`~tenure.backup.restore`.
"""
