"""Predicting on clusters, each by its real engine."""
