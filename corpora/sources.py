"""Sources of a corpus, and TOML recipes that list them with their licences.

licence = "CC-BY-SA-4.0"
exclude = ["nsmc/ratings_test.txt"]

[[sources]]
path = "archive/2021.csv"
fields = { text = "본문" }
title = "the archive of 2021"
origin = "our own"
licence = "all rights reserved"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from pydantic import Field

from corpora.cleaning import CleaningConfig
from corpora.corpus import SourceFile
from corpora.foundation.config import Config, load_toml, validate
from corpora.foundation.errors import DataError, RecipeError, UsageError, suggest
from corpora.foundation.files import package_path, sha256
from corpora.readers.decoding import Encoding, format_of
from corpora.readers.fields import parse_fields
from corpora.readers.records import TextUnit, formats

TEXT_UNITS: tuple[TextUnit, ...] = get_args(TextUnit)
RECIPES = package_path("corpora", "recipes")


@dataclass(frozen=True)
class Source:
    """A file or folder, and how it is read."""

    path: Path
    text_unit: TextUnit | None = None
    """What a document is in plain text; None: the setting of the build."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Column of each field, in addition to those of the build."""
    share: float = 1.0
    """Share of its documents that is used, chosen by a hash of their texts."""
    sentences: bool = False
    """Whether each sentence of a document, and its title, is a document of its own."""


def find_inputs(
    sources: Sequence[Source | Path],
    out: Path,
    text_unit: TextUnit,
    fields: Mapping[str, str],
    encoding: Encoding = "auto",
) -> list[tuple[Path, SourceFile]]:
    """Return the files of SOURCES in reading order, with their digests.

    Args:
        sources: files and folders.
        out: folder of the corpus.
        text_unit: what a document is in plain text, unless the source sets it.
        fields: column of each field, for all sources.
        encoding: of text files.

    Raises:
        DataError: a source is missing, or a folder has nothing to read.
        UsageError: OUT is inside a source, or a source has an option that its format does not support.
    """
    inputs: list[tuple[Path, SourceFile]] = []
    names: set[str] = set()
    for source in sources:
        source = source if isinstance(source, Source) else Source(source)
        if source.path.is_dir() and out.resolve().is_relative_to(source.path.resolve()):
            raise UsageError("--out", f"'{out}' lies inside the source '{source.path}'", "choose another folder")
        for path in _files_of(source.path):
            is_text = format_of(path) == ".txt"
            if path == source.path and source.text_unit and not is_text:
                raise UsageError(path, f"':{source.text_unit}' is for plain text", "leave it out")
            if path == source.path and source.fields and is_text:
                raise UsageError(path, f"plain text has no column for '{next(iter(source.fields))}'", "leave it out")
            file = SourceFile(
                name=_unique(path.name, names),
                sha256=digest_of(path),
                size_bytes=path.stat().st_size,
                text_unit=(source.text_unit or text_unit) if is_text else None,
                fields={} if is_text else {**fields, **source.fields},
                share=source.share,
                sentences=source.sentences,
                encoding=encoding,
            )
            names.add(file.name)
            inputs.append((path, file))
    return inputs


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and format_of(file) in formats()]
    files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    # Beside the Arrow files of a saved data set lie descriptions of it.
    arrow_folders = {file.parent for file in files if format_of(file) == ".arrow"}
    files = [file for file in files if not (file.suffix == ".json" and file.parent in arrow_folders)]
    if not files:
        raise DataError(
            path, "nothing to read in this folder", f"give files of {', '.join(formats())}, or .gz or .zst of these"
        )
    return files


def _unique(name: str, names: set[str]) -> str:
    number = 2
    unique = name
    while unique in names:
        unique, number = f"{name}~{number}", number + 1
    return unique


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; one that cannot be read is a `DataError`."""
    try:
        return sha256(path)
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error


def parse_source(argument: str) -> Source:
    """Read `PATH`, `PATH:line` or `PATH:text=COLUMN`, options one after the other.

    Raises:
        UsageError: a field is unknown.
    """
    path, unit, fields = argument, None, dict[str, str]()
    while not Path(path).exists():
        head, _, option = path.rpartition(":")
        if head and option in TEXT_UNITS:
            unit = unit or option
        elif head and "=" in option:
            fields |= parse_fields([option])
        else:
            break
        path = head
    return Source(Path(path), unit, fields)


# ---- recipes ----


class SourceEntry(Config):
    """A source with its origin."""

    path: str
    """File or folder, under the data root."""
    title: str
    """Short description."""
    origin: str
    """Publisher and location."""
    licence: str
    text_unit: TextUnit | None = None
    """What a document is in plain text."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Column of each field, where the names are unusual."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of its documents that is used, to balance sources; chosen by a hash of their texts."""
    sentences: bool = False
    """Make a document of each sentence, and of the title: for encoders that learn sentence vectors."""


class CorpusRecipe(Config):
    """Everything that decides a corpus except the files."""

    sources: list[SourceEntry] = Field(min_length=1)
    """In reading order: of two equal texts the first is kept."""
    licence: str
    """Licence of models trained on all of them."""
    exclude: list[str] = Field(default_factory=list)
    """Evaluation data under the data root, as patterns; each must match something."""
    held_out: float = Field(default=0.01, ge=0, lt=1)
    cleaning: CleaningConfig = CleaningConfig()

    def sources_under(self, root: Path) -> list[Source]:
        """Return the sources with their paths under ROOT.

        Raises:
            DataError: a file is missing.
        """
        for entry in self.sources:
            if not (root / entry.path).exists():
                raise DataError(root / entry.path, f"missing ({entry.title})", f"get it from {entry.origin}")
        return [
            Source(root / entry.path, entry.text_unit, entry.fields, entry.share, entry.sentences)
            for entry in self.sources
        ]

    def excluded_under(self, root: Path) -> tuple[Path, ...]:
        """Return the evaluation files under ROOT.

        Raises:
            DataError: a pattern matches nothing.
        """
        files: list[Path] = []
        for pattern in self.exclude:
            found = sorted(root.glob(pattern))
            if not found:
                what = "no evaluation file matches, so its texts cannot be excluded"
                raise DataError(root / pattern, what, "give the data root with --data, or remove the pattern")
            files += found
        return tuple(files)


def read_corpus_recipe(name: str) -> CorpusRecipe:
    """Read a recipe: a TOML file or a bundled one such as `open_korean`.

    Raises:
        RecipeError: there is none of that name, or it has an unknown key or a wrong value.
    """
    known = {path.stem: path for path in RECIPES.glob("*.toml")}
    path = known.get(name, Path(name))
    if not path.is_file():
        raise RecipeError(name, "no such recipe", f"give a TOML file or a bundled recipe: {suggest(name, known)}")
    return validate(CorpusRecipe, load_toml(path), path)
