"""Verbs: what the ask means on each card, which rules refuse it, how nodes rank, which cards it gets.

One `decide()` for production, simulator and benchmark. Pure: same fleet, ask and time, same answer.
"""
