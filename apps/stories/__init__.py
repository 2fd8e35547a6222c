"""Stories of a day of news: articles grouped, described, kept and shown."""
