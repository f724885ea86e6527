"""A service of several processes."""
