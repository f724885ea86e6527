"""hbtvm against other ways to run whole scikit-learn pipelines: ``python -m benchmarks.pipelines``."""
