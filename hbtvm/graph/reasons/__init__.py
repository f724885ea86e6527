"""Reasons: the contributions of raw columns to a model's raw scores."""
