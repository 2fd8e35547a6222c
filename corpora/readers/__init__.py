"""What newsrooms have, read: bytes into lines, lines into records, records into fields."""
