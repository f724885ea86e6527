"""Measurements behind the figures in the README; nothing here is a test."""
