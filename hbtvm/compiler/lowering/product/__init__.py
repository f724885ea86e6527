"""Lowering of products of rows and weights."""
