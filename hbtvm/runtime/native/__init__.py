"""The native executor: the C of `hbtvm/native`, compiled into packages, and what Python hands to it."""
