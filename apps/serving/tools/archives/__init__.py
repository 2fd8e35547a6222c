"""Tools for many articles: stories, copies, keywords."""
