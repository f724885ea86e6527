"""Codes of values: the place of each value among a feed's categories."""
