"""Patterns of tokenizers: those of published ones pass, those that backtrack without end do not."""

import json
from pathlib import Path

import pytest

from corpora.foundation.errors import CheckpointError
from pretraining.vocabulary.patterns import check_patterns, is_risky

ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
SPACES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PUBLISHED = (
    # GPT-2 and RoBERTa; Llama 3; Qwen 2; XLM-R; BLOOM
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ENDINGS + r"\p{N}{1,3}" + SPACES,
    ENDINGS + r"\p{N}" + SPACES,
    r" {2,}",
    r" ?[^(\s|[.,!?])]+",
)
RISKY = (
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+$",
    "([a-z]+)*x",
    "(?:a*)*",
    "(a?){5000}",
    "((a|b)c)*",
    ".*.*.*.*.*=",
    "(?:x(?:a+)y)+",
    "a" * 200_000,
)


def test_patterns_that_may_search_without_end_are_known(subtests: pytest.Subtests) -> None:
    for pattern in PUBLISHED:
        with subtests.test(pattern=pattern):
            assert not is_risky(pattern)
    for pattern in RISKY:
        with subtests.test(pattern=pattern[:40]):
            assert is_risky(pattern)


def test_a_pattern_is_found_wherever_it_lies_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": {"Regex": 5}}, "normalizer": None}))
    check_patterns(path)
    deep = {"pre_tokenizer": {"pretokenizers": [{"type": "Split", "pattern": {"Regex": "(a+)+"}}]}}
    for text in (json.dumps(deep), json.dumps(deep).replace("Regex", "\\u0052egex")):
        path.write_text(text)
        with pytest.raises(CheckpointError, match="may search without end"):
            check_patterns(path)
