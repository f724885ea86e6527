"""Hummingbird's own tests, held against hbtvm: ``python -m benchmarks.hummingbird CHECKOUT``."""
