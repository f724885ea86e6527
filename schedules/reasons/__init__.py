"""Schedules of Shapley values, by kind of target."""
