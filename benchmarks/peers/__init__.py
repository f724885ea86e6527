"""hbtvm against other ways to predict with trained tree ensembles: ``python -m benchmarks.peers``."""
