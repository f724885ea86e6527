"""Schedules for NVIDIA GPUs, by strategy."""
