"""Words of messages and commands: printable text, quantities, and names that users type."""
