"""Finished cells into a leaderboard: rows, tests, tables, pages, charts."""
