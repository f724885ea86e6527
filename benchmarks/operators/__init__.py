"""hbtvm against other ways to run single operators of scikit-learn: ``python -m benchmarks.operators``."""
