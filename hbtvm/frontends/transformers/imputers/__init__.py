"""Imputers of missing values."""
