"""Strategies for the Shapley values of forests."""
