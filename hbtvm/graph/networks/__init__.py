"""Networks of operators and of tree ensembles, and rewrites between their nodes."""
