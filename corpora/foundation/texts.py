"""Texts that people read, in Korean and in English: one TOML file a language under `corpora/texts/`.

texts = Texts("ko", "demo")
texts("summary.facts", total=12, chosen=3, chars=210, share=0.18)
"""

import functools
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from corpora.foundation.config import load_toml
from corpora.foundation.files import package_path

Language: TypeAlias = Literal["ko", "en"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
FORMULA = frozenset("=+-@")
CONTROLS = frozenset("\t\r\n")
"""Beginnings of a cell that spreadsheets compute."""


@dataclass(frozen=True)
class Texts:
    """The texts of one language, by key; `{…}` in a text are values as in `str.format`."""

    language: Language = "ko"
    section: str = ""
    """Table of the catalogue that keys are looked up in, e.g. `demo`; empty: the whole catalogue."""

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values filled in.

        Raises:
            KeyError: the catalogue has no such text, or the text names a value that is not given.
        """
        return catalogue(self.language)[self._full(key)].format(**values)

    def get(self, key: str, otherwise: str) -> str:
        """Return a text, or OTHERWISE where there is none, such as for a label of somebody's own model."""
        return catalogue(self.language).get(self._full(key), otherwise)

    def _full(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key


@functools.cache
def catalogue(language: Language) -> Mapping[str, str]:
    """Return every text of a language by its dotted key."""
    return dict(_flat(load_toml(package_path("corpora", "texts", f"{language}.toml")), ""))


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def spreadsheet_text(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would take it for a formula.

    White space before a sign, and signs in full width, do not hide one.
    """
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return f"'{text}" if first in FORMULA or text[:1] in CONTROLS else text
