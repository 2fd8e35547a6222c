"""Korean text in, clean documents out."""

from corpora.foundation.floors import DependencyError, check_floors, show_in_one_line

# Every package of ours imports this one, so an old dependency is named before it fails somewhere inside.
try:
    check_floors()
except DependencyError:
    show_in_one_line()
    raise
