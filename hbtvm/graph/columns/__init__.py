"""Columns of pipelines in front of a model: steps, and their computation in numpy."""
