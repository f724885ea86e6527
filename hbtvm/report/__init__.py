"""Self-contained HTML pages: of a tuning log (`page`), and of explained rows (`reasons`)."""
