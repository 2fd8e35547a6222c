"""The desk: everything that the tools say of a draft, and what an update of an article changed.

    from apps.desk import changes, examine
    found = examine(draft, title="제목", archive=[Earlier("지난 기사 제목", "본문")])
    found.corrections, found.bullets, found.headlines, found.similar, found.copies
    for change in changes(old, new):
        print(change.kind, change.old_text, "→", change.new_text)

    python -m apps.desk draft.txt --archive earlier.jsonl --html desk.html
    python -m apps.desk changes old.txt new.txt

Tools that find corrections join by an entry of `apps.desk.checkers.CHECKERS`.
"""

from apps.desk.changes import Change, changes
from apps.desk.checkers import Correction, accept, check
from apps.desk.draft import Earlier, Examined, examine

__all__ = ["Change", "Correction", "Earlier", "Examined", "accept", "changes", "check", "examine"]
