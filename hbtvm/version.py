"""The version, apart from the package so that its modules can import it."""

__version__ = "0.1.0"
