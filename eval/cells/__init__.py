"""Cells of the leaderboard (model × task × seed): planned, run, measured and kept."""
