"""Words of messages: printable text, and quantities."""
