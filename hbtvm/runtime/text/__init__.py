"""Texts as UTF-8, and calls of the compiled code that counts their terms."""
