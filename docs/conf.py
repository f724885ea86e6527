"""Sphinx configuration; ``make docs`` builds the site.

``DOCS_URL``, the address where the site is published, adds social cards: their links must be absolute.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import hbtvm
from hbtvm.cli.parser import Parser

os.environ["COLUMNS"] = "100"

project = "hbtvm"
author = project_copyright = "The hbtvm authors"
version = release = hbtvm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxext.opengraph",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
highlight_language = "bash"
html_theme = "furo"
html_title = "hbtvm"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
ogp_site_url = os.environ.get("DOCS_URL", "")
ogp_description_length = 160
# matplotlib draws a card for each page, which takes longer than the rest of the site.
ogp_social_cards = {"enable": bool(ogp_site_url), "line_color": "#0072b2"}
exclude_patterns = ["_build"]
# Tables from benchmarks start with lower-level headings.
suppress_warnings = ["myst.header"]

# Single backquotes in docstrings link to objects on the site; other names appear as code.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_rtype = False
# The site builds without the engines.
autodoc_mock_imports = ["dask", "distributed", "duckdb", "mlflow", "polars", "pyspark", "ray"]

COMMANDS = Path(__file__).parent / "reference" / "commands"


def write_commands(_: Any) -> None:
    """Write each command's help for the reference."""
    from hbtvm.cli.main import make_parser

    COMMANDS.mkdir(exist_ok=True)
    for name, parser in _parsers(make_parser(), "hbtvm"):
        path = COMMANDS / f"{name.replace(' ', '-')}.txt"
        text = parser.format_help(everything=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _parsers(parser: Parser, name: str) -> list[tuple[str, Parser]]:
    parsers = [(name, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                parsers += _parsers(inner, f"{name} {word}")
    return parsers


def setup(app: Any) -> None:
    """Register the hooks; Sphinx calls this."""
    app.connect("builder-inited", write_commands)
