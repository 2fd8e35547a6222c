"""Tools for drafts and articles: what the desk says of them. A file each, as in the folder above."""
