"""Parts from other packages, found by their entry points; `examples/plugin/` adds three of them.

    [project.entry-points."pressbert.tasks"]
    review-stars = "my_package:TASK"

| group | what an entry point names |
| --- | --- |
| `pressbert.readers` | a `corpora.readers.records.FileReader` |
| `pressbert.steps` | a `corpora.cleaning.Step`, run where a recipe lists it in `cleaning.steps` |
| `pressbert.objectives` | a subclass of `pretraining.objective.Objective` |
| `pressbert.tasks` | a `downstream.task.Task` |
| `pressbert.backends` | a `downstream.runtimes.backends.Backend` |
| `pressbert.contestants` | a subclass of `eval.contestants.contestant.Contestant` |
| `pressbert.tools` | a tool of the server, `apps.serving.tool.Tool`, or of the desk, `apps.desk.checkers.Checker` |

Nothing of a plug-in is imported before its group is asked for. A part may not have the name of one of ours.
"""

import functools
from collections.abc import Container, Mapping
from importlib import metadata
from typing import Any

from corpora.foundation.errors import SuiteError

GROUPS = ("readers", "steps", "objectives", "tasks", "backends", "contestants", "tools")
PREFIX = "pressbert."


class PluginError(SuiteError):
    """A plug-in that cannot be loaded, or is not what its group expects."""


def plugins(group: str, kind: Any = None, *, key: str = "name") -> Mapping[str, Any]:
    """Load the parts of a group by their names.

    Args:
        group: one of `GROUPS`.
        kind: what every part has to be: an instance of it, or a subclass where the part is a class.
        key: attribute with the name of a part; empty: its name is that of the entry point.

    Raises:
        PluginError: a part cannot be imported, is of another kind, or two have one name.
    """
    assert group in GROUPS, group
    return _load(group, kind, key)


@functools.cache
def _load(group: str, kind: Any, key: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for entry in sorted(metadata.entry_points(group=PREFIX + group), key=lambda entry: entry.name):
        where = f"plug-in {entry.name} ({entry.value})"
        remove = f"correct or uninstall {entry.dist.name if entry.dist else 'its package'}"
        try:
            part = entry.load()
        except Exception as error:  # code of others may raise anything while it is imported
            raise PluginError(where, f"cannot be loaded ({type(error).__name__}: {error})", remove) from error
        if kind is not None and not (issubclass(part, kind) if isinstance(part, type) else isinstance(part, kind)):
            raise PluginError(where, f"{part!r:.60} is no {kind.__name__}", remove)
        name = str(getattr(part, key)) if key else entry.name
        if name in found:
            raise PluginError(where, f"'{name}' is the name of two plug-ins", remove)
        found[name] = part
    return found


def with_plugins(own: Mapping[str, Any], group: str, kind: Any, *, key: str = "name") -> dict[str, Any]:
    """Return our parts and those of plug-ins.

    Raises:
        PluginError: a plug-in has the name of one of ours; see also `plugins`.
    """
    added = plugins(group, kind, key=key)
    refuse_taken(group, added, own)
    return {**own, **added}


def refuse_taken(group: str, added: Mapping[str, Any], taken: Container[str]) -> None:
    """Refuse plug-ins with names that are taken.

    Raises:
        PluginError: there is one.
    """
    for name in added:
        if name in taken:
            raise PluginError(f"plug-in {name}", f"{PREFIX}{group} has a part of this name", "give it another name")
