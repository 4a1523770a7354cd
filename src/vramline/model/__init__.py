"""Nouns: GPUs, nodes, asks, claims, the ledger, observations, columns, decisions.

Time enters as a number; nothing here performs I/O. `law` is the one implementation of the memory law,
`Ledger` the only place that knows what was promised, `Fleet` the only place where both meet.
"""
