"""Tree ensembles: thresholds, categories, and exact rewrites of splits."""
