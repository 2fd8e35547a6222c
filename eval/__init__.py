"""Models × tasks in, leaderboard out."""
