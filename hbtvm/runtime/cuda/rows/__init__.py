"""Rows that are on a GPU already."""
