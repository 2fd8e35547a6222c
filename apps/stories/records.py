"""Records of persistent stories and their files: `stories.json`, and vectors beside it; see `apps.stories.state`.

The state names its vectors by their digest, and has one of itself. Commands that read, change and write a folder hold
its lock meanwhile.
"""

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from apps.stories.clusters import ClusteringConfig
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError
from corpora.foundation.files import LOCK_FILE, atomic_file, locked, parse_signed, sha256, write_signed

STATE_FILE = "stories.json"
VECTORS = "vectors-*.safetensors"
SCHEMA = 1
READ_ATTEMPTS = 5
"""How often a folder is read again whose vectors another process has replaced meanwhile."""
Arrays = dict[str, NDArray[Any]]


class Story(Config):
    """Attributes of a story besides its articles."""

    name: str = ""
    is_pinned: bool = False
    batch: int = 0
    """Index of the batch of articles in which it was found."""


class Edit(Config):
    """An edit, and what is needed to undo it."""

    kind: Literal["merge", "split", "rename", "pin"]
    story: str
    before: Story | None = None
    """The story before `rename` and `pin`."""
    gone: dict[str, Story] = Field(default_factory=dict)
    """Stories that `merge` absorbed."""
    moved: dict[str, list[int]] = Field(default_factory=dict)
    """Indices of their articles."""
    made: list[str] = Field(default_factory=list)
    """Stories that `split` created."""


class StateFile(Config):
    """What `stories.json` holds; vectors are in a file of their own."""

    schema_version: int = Field(alias="schema")
    embedder: str
    vectors: str
    vectors_sha256: str = ""
    """Empty in files of earlier versions."""
    config: ClusteringConfig
    next_story: int
    num_batches: int
    num_searched: int = 0
    stories: dict[str, Story]
    articles: list[dict[str, str]]
    story_of: list[str]
    is_core: list[bool]
    batch_of: list[int]
    texts: list[str]
    of_article: list[int]
    edits: list[Edit]


def lock_stories(folder: Path) -> AbstractContextManager[None]:
    """Return a lock on the stories of a folder, to be held from reading to writing; another process waits."""
    return locked(folder / LOCK_FILE, f"stories in {folder}", is_kept=False)


def has_stories(folder: Path) -> bool:
    """Whether stories are kept in a folder: their vectors lie there, which a report has not."""
    return any(folder.glob(VECTORS))


def write_state(folder: Path, state: StateFile, arrays: Arrays) -> None:
    """Write state and vectors; a reader sees either the old or the new ones.

    Raises:
        ResultError: the folder cannot be written.
    """
    from safetensors.numpy import save

    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(data).hexdigest()
    name = f"vectors-{state.num_batches:05d}-{digest[:12]}.safetensors"
    with atomic_file(folder / name, "wb") as file:
        file.write(data)
    state = state.model_copy(update={"vectors": name, "vectors_sha256": digest})
    write_signed(folder / STATE_FILE, state.model_dump(by_alias=True), indent=None)
    for old in folder.glob(VECTORS):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_state(folder: Path) -> tuple[StateFile, Arrays]:
    """Read what `write_state` wrote.

    Raises:
        DataError: there are no stories, or files are damaged.
    """
    for attempt in range(READ_ATTEMPTS):
        state = _read_record(folder / STATE_FILE)
        try:
            return state, _read_vectors(folder / Path(state.vectors).name, state)
        except FileNotFoundError as error:
            if attempt == READ_ATTEMPTS - 1:
                raise _missing(folder / Path(state.vectors).name) from error
    raise AssertionError("the loop returns or raises")


def _missing(path: Path) -> DataError:
    return DataError(path, "no such file", "create it with python -m apps.clustering FILE --stories DIR")


def _damaged(path: Path, error: object) -> DataError:
    what = f"damaged ({str(error).splitlines()[0][:200]})"
    return DataError(path, what, "restore the folder from a copy, or use another one")


def _read_record(path: Path) -> StateFile:
    try:
        content = parse_signed(path.read_text(encoding="utf-8"))
        state = StateFile(**content)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except (ValueError, ValidationError, OSError, TypeError) as error:
        raise _damaged(path, error) from error
    if state.schema_version != SCHEMA:
        raise DataError(path, f"schema {state.schema_version}", f"this version reads schema {SCHEMA}")
    if reason := _inconsistent(state):
        raise _damaged(path, reason)
    return state


def _inconsistent(state: StateFile) -> str:
    """Return what of a state contradicts the rest of it, or nothing."""
    num_articles, num_texts = len(state.articles), len(state.texts)
    columns = (state.story_of, state.is_core, state.batch_of, state.of_article)
    if any(len(column) != num_articles for column in columns):
        return f"columns of other lengths than {num_articles} articles"
    if unknown := {story for story in state.story_of if story} - state.stories.keys():
        return f"an article in '{min(unknown)[:20]}', which is no story"
    if any(not -1 <= text < num_texts for text in state.of_article):
        return f"the title of an article is none of {num_texts}"
    moved = (index for edit in state.edits for indices in edit.moved.values() for index in indices)
    if any(not 0 <= index < num_articles for index in moved):
        return f"an edit of an article that is none of {num_articles}"
    if not all(id_[:1] == "s" and id_[1:].isdecimal() for id_ in state.stories):
        return "the id of a story is not s and a number"
    return ""


def _read_vectors(path: Path, state: StateFile) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        if state.vectors_sha256 and sha256(path) != state.vectors_sha256:
            raise _damaged(path, "changed since it was written: its digest is another one")
        arrays: Arrays = load_file(path)
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if not {"points", "own", "strange"} <= arrays.keys() or len(arrays["points"]) != len(state.texts):
        raise _damaged(path, f"not the vectors of {len(state.texts)} titles")
    return arrays
