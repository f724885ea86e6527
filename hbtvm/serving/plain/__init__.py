"""Rows and predictions in plain JSON, and their description."""
