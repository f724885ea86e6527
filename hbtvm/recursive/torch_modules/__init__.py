"""Cells from torch's modules and ``.pt2`` files."""
