"""Which titles report one event: log-odds of pairs, groups of titles, and titles in routine formats."""
