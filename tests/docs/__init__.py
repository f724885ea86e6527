"""The documentation: that it builds, that its links lead somewhere, that what it shows runs."""
