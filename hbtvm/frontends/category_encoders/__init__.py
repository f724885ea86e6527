"""category_encoders: each encoder as tables from categories to numbers."""
