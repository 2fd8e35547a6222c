"""The rules of `rules.toml`, compiled."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from corpora.foundation.config import Config, load_recipe
from corpora.foundation.files import package_path
from downstream.writing.rules import expand

Kind = Literal["passive", "translationese", "nouns", "wordiness"]


class AwkwardRule(Config):
    """One rule with its examples."""

    name: str
    kind: Kind
    reason: str
    """Why the wording is awkward, and what to write, in Korean."""
    find: str
    wrong: str
    """A sentence in which it is found."""
    right: tuple[str, str]
    """Sentences in which it is not found."""


class RuleFile(Config):
    """`rules.toml`."""

    rules: tuple[AwkwardRule, ...]


@dataclass(frozen=True)
class CompiledRule:
    """A rule and its pattern."""

    rule: AwkwardRule
    pattern: re.Pattern[str]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where a text matches."""
        for found in self.pattern.finditer(text):
            if found.end() > found.start():
                yield found.span()


@functools.cache
def all_rules() -> tuple[CompiledRule, ...]:
    """Read the rules that come with the package."""
    rules = load_recipe(package_path("downstream", "awkward", "rules.toml"), RuleFile).rules
    return tuple(CompiledRule(rule, re.compile(expand(rule.find))) for rule in rules)
