"""Statements of threads that compute Shapley values."""
