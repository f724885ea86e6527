"""hbtvm against its peers on recursive models: ``python -m benchmarks.recursive``."""
