"""Benchmarks of the product's own code, with figures on standard output."""
