"""Columns of pipelines before a model: their steps, and their computation in numpy."""
