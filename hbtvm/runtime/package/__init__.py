"""The package file: its archive, manifest, tables and checks."""
