"""Contributions of a row's columns to its score: Shapley values."""
