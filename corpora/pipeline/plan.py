"""What a build is to do: its settings, its sources, and the units in which they are read."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from corpora.cleaning import CleaningConfig
from corpora.corpus import PROGRESS, SourceFile
from corpora.foundation.config import Config
from corpora.foundation.errors import DataError
from corpora.foundation.files import fingerprint, parse_signed, write_signed
from corpora.pipeline.workspace import Workspace
from corpora.readers.decoding import Encoding
from corpora.readers.records import TextUnit
from corpora.sources import digest_of

PLAN = "plan.json"
FORMAT = 2
"""Incremented when equal sources and settings give other results of a stage."""


class BuildConfig(Config):
    """Settings of a build."""

    cleaning: CleaningConfig = CleaningConfig()
    text_unit: TextUnit = "block"
    """What a document is in plain text."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Which column holds what, e.g. `{"text": "기사본문"}`; unnamed ones are found by their usual names."""
    encoding: Encoding = "auto"
    """Of text files: UTF-8, UTF-16 or CP949; `auto`: recognized."""
    max_rejected: float = Field(default=0.5, ge=0, le=1)
    """Largest share of unreadable records in a source; with more it is refused."""
    exclude: tuple[Path, ...] = ()
    """Files whose texts are kept out of the corpus, such as evaluation data."""
    held_out: float = Field(default=0.01, ge=0, lt=1)
    """Share of held-out documents. The digest of a text decides, so the order of documents does not matter."""
    shard_mb: float = Field(default=8, gt=0)
    """Largest size of a shard in MB (1,000,000 bytes); a longer document gets a shard of its own."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the documents, as JSON reads them back."""
        settings = self.model_dump(mode="json", exclude={"text_unit", "fields", "encoding", "max_rejected", "exclude"})
        settings["exclude"] = [{"name": path.name, "sha256": digest_of(path)} for path in self.exclude]
        return settings


class Unit(Config):
    """A part of the sources that is read by one task; units do not depend on the number of tasks."""

    source: int
    """Number of its source in the plan."""
    path: Path
    file: SourceFile
    """How it is read; its name is that of the source."""


class Plan(Config):
    """A build, as every task reads it from the workspace."""

    config: BuildConfig
    settings: dict[str, Any]
    """See `BuildConfig.settings`."""
    sources: tuple[SourceFile, ...]
    units: tuple[Unit, ...]

    def key_of(self, unit: int) -> str:
        """Return the digest of what decides the documents of a unit, wherever in the plan it stands."""
        return self._unit_keys[unit]

    def source_key(self, source: int) -> str:
        """Return the digest of what decides the documents of a source."""
        return self._source_keys[source]

    def key(self, *parts: object) -> str:
        """Return a digest of PARTS and of the settings of cleaning."""
        return fingerprint([FORMAT, self.settings["cleaning"], *parts])[:20]

    def units_of(self, source: int) -> list[int]:
        """Return the numbers of the units of a source."""
        return self._units_by_source[source]

    @functools.cached_property
    def _unit_keys(self) -> list[str]:
        return [self.key("unit", unit.file.model_dump(mode="json")) for unit in self.units]

    @functools.cached_property
    def _source_keys(self) -> list[str]:
        return [self.key("source", [self.key_of(unit) for unit in units]) for units in self._units_by_source]

    @functools.cached_property
    def _units_by_source(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.sources]
        for number, unit in enumerate(self.units):
            found[unit.source].append(number)
        return found


def make_plan(config: BuildConfig, inputs: Sequence[tuple[Path, SourceFile]]) -> Plan:
    """Return the plan of a build of INPUTS; see `corpora.sources.find_inputs`."""
    units = tuple(Unit(source=number, path=path.absolute(), file=file) for number, (path, file) in enumerate(inputs))
    sources = tuple(file for _, file in inputs)
    # Other processes may have another working directory.
    config = config.model_copy(update={"exclude": tuple(path.absolute() for path in config.exclude)})
    return Plan(config=config, settings=config.settings(), sources=sources, units=units)


class Build:
    """A plan and its workspace: what every stage works on."""

    def __init__(self, out: Path, plan: Plan) -> None:
        """Take the plan of a build in OUT."""
        self.out, self.plan = out, plan
        self.workspace = Workspace(out / PROGRESS)

    @classmethod
    def begin(cls, out: Path, plan: Plan) -> "Build":
        """Write the plan into the workspace of OUT."""
        write_signed(out / PROGRESS / PLAN, plan.model_dump(mode="json", by_alias=True))
        return cls(out, plan)

    @classmethod
    def open(cls, out: Path) -> "Build":
        """Open a build that was begun, perhaps by another process.

        Raises:
            DataError: there is none.
        """
        path = out / PROGRESS / PLAN
        try:
            return cls(out, Plan.model_validate_json(json.dumps(parse_signed(path.read_text(encoding="utf-8")))))
        except (OSError, ValueError) as error:
            raise DataError(path, "no plan of a build", "run the whole command again") from error
