"""Yggdrasil Decision Forests (YDF): model folders, and models in memory, without its library."""
