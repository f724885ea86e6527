"""Saved models of Spark ML."""
