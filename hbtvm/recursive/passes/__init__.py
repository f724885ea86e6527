"""Rewrites of cells: each takes a cell and returns one that computes the same, and says what it did."""
