"""Edit persistent stories: list, merge, split, rename, pin, and undo.

    python -m apps.stories DIR list
    python -m apps.stories DIR merge s3 s17
    python -m apps.stories DIR rename s3 "얀센 백신 예약"
    python -m apps.stories DIR undo

DIR is the folder of `python -m apps.clustering FILE --stories DIR`. An id never changes and is never reused.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from apps.stories.records import lock_stories
from apps.stories.state import Stories
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError


def main(argv: list[str] | None = None) -> int:
    """Edit the stories of a folder; returns the exit code."""
    parser = ArgumentParser("python -m apps.stories", "List, merge, split, rename and pin stories, and undo edits.")
    parser.add_argument("folder", type=Path, help="folder given to apps.clustering with --stories")
    parser.add_argument("action", choices=["list", "merge", "split", "rename", "pin", "unpin", "undo"])
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="STORY",
        help="ids of stories; then the new name for rename, the number of parts for split",
    )
    options = parser.parse(argv)
    # Before the lock, which would create the folder.
    stories = Stories.load(options.folder)
    if options.action == "list":
        for story in stories.clusters().stories:
            sys.stdout.write(f"{story.id}\t{len(story)}\t{'*' if story.is_pinned else ''}\t{story.title}\n")
        return EXIT_DONE
    with lock_stories(options.folder):
        stories = Stories.load(options.folder)
        done = _edit(stories, options.action, options.arguments)
        stories.save(options.folder)
    sys.stdout.write(f"{done}\n")
    return EXIT_DONE


def _edit(stories: Stories, action: str, arguments: Sequence[str]) -> str:
    """Carry out one edit, and return what to report.

    Raises:
        UsageError: the arguments do not fit the action.
    """
    match action, *arguments:
        case "merge", story, *others if others:
            stories.merge(story, *others)
            return f"{story}: {len(stories.members(story))} articles"
        case "split", story:
            return " ".join([story, *stories.split(story)])
        case "split", story, parts if parts.isdecimal():
            return " ".join([story, *stories.split(story, int(parts))])
        case "rename", story, name:
            stories.rename(story, name)
            return f"{story}: {name}"
        case "pin" | "unpin", story:
            stories.pin(story, is_pinned=action == "pin")
            return f"{story}: {action}ned"
        case ("undo",):
            edit = stories.undo()
            return f"{edit.kind} {edit.story}: undone"
    usage = {"merge": "STORY STORY…", "split": "STORY [PARTS]", "rename": "STORY NAME", "undo": "nothing"}
    what = f"'{' '.join(arguments)}' is not what {action} takes"
    raise UsageError(f"python -m apps.stories {action}", what, f"give {usage.get(action, 'STORY')}")


if __name__ == "__main__":
    run_command(main)
