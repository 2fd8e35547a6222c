"""Tools for who writes: errors, wording, completion, blanks."""
