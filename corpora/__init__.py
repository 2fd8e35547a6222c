"""Korean text in, clean documents out."""
