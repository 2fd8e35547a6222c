"""Records of persistent stories, as saved in `stories.json`; see `apps.stories.state`."""

from typing import Literal

from pydantic import Field

from apps.stories.clusters import ClusteringConfig
from corpora.foundation.config import Config


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
