"""Logs and metrics: one list of each."""
