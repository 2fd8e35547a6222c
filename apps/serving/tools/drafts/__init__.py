"""Tools for drafts and articles: what the desk says of them."""
