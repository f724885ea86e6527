"""scikit-learn's trees, boosters and linear models."""
