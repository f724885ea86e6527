"""Rows of callers: read from their containers, checked, and converted to matrices."""
