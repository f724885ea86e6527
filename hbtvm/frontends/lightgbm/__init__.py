"""LightGBM: boosters, estimators and model texts."""
