"""Rewrites of cells: each returns an equivalent cell."""
