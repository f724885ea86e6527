"""The subcommands: a module for each, with its parser and its ``run``."""
