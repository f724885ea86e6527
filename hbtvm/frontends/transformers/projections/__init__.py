"""Transformers that multiply rows by a matrix."""
