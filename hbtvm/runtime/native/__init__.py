"""What the native executor (`hbtvm/native`) is told of a model."""
