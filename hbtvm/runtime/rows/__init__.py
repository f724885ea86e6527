"""Callers' rows: read from their containers, checked, and converted to matrices."""
