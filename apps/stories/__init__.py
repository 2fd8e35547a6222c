"""Stories of a day of news: articles are grouped, described, kept and shown."""
