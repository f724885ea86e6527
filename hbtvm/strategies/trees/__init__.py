"""Strategies for tree ensembles, and ensembles prepared for kernels."""
