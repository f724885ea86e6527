"""XGBoost: boosters, estimators and saved models."""
