"""Rewrites of lowered functions for CUDA."""
