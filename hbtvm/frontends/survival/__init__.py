"""Survival models of scikit-survival and lifelines: risk scores, and times."""
