"""skrub: TableVectorizer, its steps for single columns, and DatetimeEncoder."""
