"""Words of messages: text made safe to print, and quantities."""
