"""Predicting more rows than memory holds."""
