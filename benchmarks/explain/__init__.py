"""Shapley values and leaf ids against other libraries: ``python -m benchmarks.explain``."""
