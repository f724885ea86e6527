"""Selectors of columns, and the importances that they use."""
