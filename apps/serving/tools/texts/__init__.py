"""Tools for texts by a model: classes, answers, vectors, summaries, comments."""
