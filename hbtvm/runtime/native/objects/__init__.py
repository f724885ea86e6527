"""Shared objects: compiled, cached, checked and loaded."""
