"""Lowering of the search for the nearest points."""
