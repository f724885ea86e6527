"""A tuning log as one HTML page that needs nothing from outside itself."""

from hbtvm.report.page import render
from hbtvm.report.story import Story, tell

__all__ = ["Story", "render", "tell"]
