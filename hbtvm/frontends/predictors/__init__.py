"""Front ends of estimators that predict: short functions from a table to operators over it."""
