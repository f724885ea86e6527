"""Structures of recursive models: files, vocabularies and options."""
