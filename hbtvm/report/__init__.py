"""Renders a tuning log as one self-contained HTML page."""

from hbtvm.report.page import render
from hbtvm.report.story import Story, tell

__all__ = ["Story", "render", "tell"]
