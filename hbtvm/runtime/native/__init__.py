"""Python's interface to the native executor, whose C (`hbtvm/native`) is compiled into packages."""
