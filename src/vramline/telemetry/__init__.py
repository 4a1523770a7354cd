"""Logs of the shell: one set-up for all processes, one form for all lines."""
