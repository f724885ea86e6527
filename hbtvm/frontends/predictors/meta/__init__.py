"""Meta-estimators: models that consist of other models."""
