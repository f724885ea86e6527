"""feature-engine: transformers of some columns of a data frame, which keep the others."""
