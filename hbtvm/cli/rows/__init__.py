"""Files of rows: readers by format, the writer of predictions, and datasets of files."""
