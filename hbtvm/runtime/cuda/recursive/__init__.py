"""Recursive models on a GPU."""
