"""Structures of text and JSON as lists of nodes."""
