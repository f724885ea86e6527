"""Schedules for CPUs, by strategy."""
