"""Predicting more rows than memory holds: batches of Arrow in, batches of Arrow out."""
