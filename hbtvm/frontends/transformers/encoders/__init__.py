"""Encoders of categories."""
