"""Both languages have every text, with the same values; every text that a page asks for is there."""

import ast
import re
import string
from pathlib import Path

import pytest

from apps.demo import PAGES
from apps.demo_pages.comments import label_name
from apps.demo_pages.inputs import KNOWN
from apps.demo_pages.shelf import OPENERS
from apps.demo_pages.texts import TEXTS, Say
from corpora.boilerplate import KINDS
from downstream.summaries.features import FEATURES

APPS = Path(__file__).parents[3] / "apps"
SOURCES = [APPS / "demo.py", *(APPS / "demo_pages").glob("*.py")]
OTHER_PARTS = ("list", "heading", "question", "dateline", "headline", "email", "promotion")


def asked_for() -> tuple[set[str], set[str]]:
    """Return the literal keys that the sources ask for, and the patterns of those put together."""
    literal, patterns = set(), set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(str() as text) if text in TEXTS:
                    literal.add(text)
                case ast.Call(ast.Name("say") | ast.Attribute(attr="say"), [ast.Constant(str() as key), *_]):
                    literal.add(key)
                case ast.Call(ast.Name("say") | ast.Attribute(attr="say" | "known"), [ast.JoinedStr(parts), *_]):
                    texts = (re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in parts)
                    patterns.add("".join(texts))
    return literal, patterns


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_values() -> None:
    assert [key for key, (korean, english) in TEXTS.items() if fields(korean) != fields(english)] == []


def test_korean_texts_are_korean_and_english_ones_are_not() -> None:
    examples = {key for key in TEXTS if ".example_" in key}
    assert [k for k, (ko, _) in TEXTS.items() if not re.search("[가-힣]", ko) and not k.startswith("download.")] == []
    hangul = {k for k, (_, en) in TEXTS.items() if re.search("[가-힣]", en)} - examples
    assert hangul == {"summary.focus_hint", "answers.question_hint", "error.no_column"}


def test_every_text_that_is_asked_for_is_there_and_no_other() -> None:
    literal, patterns = asked_for()
    assert literal - set(TEXTS) == set()
    unused = {key for key in TEXTS if key not in literal and not any(re.fullmatch(p, key) for p in patterns)}
    assert unused == set()


@pytest.mark.parametrize(
    "keys",
    [
        [f"feature.{name}" for name in (*FEATURES, "focus")],
        [f"part.{kind}" for kind in (*KINDS, *OTHER_PARTS)],
        [f"{prefix}.{kind}" for kind in OPENERS for prefix in ("kind", "missing")],
        [f"{page.name}.{part}" for page in PAGES for part in ("title", "lead")],
        [key for _, key in KNOWN],
        [f"edit.{kind}" for kind in ("merge", "split", "rename", "pin")],
    ],
    ids=lambda keys: keys[0],
)
def test_names_that_come_from_elsewhere_have_texts(keys: list[str]) -> None:
    assert [key for key in keys if key not in TEXTS] == []


def test_unknown_labels_stay_as_they_are() -> None:
    assert label_name(Say("ko"), "negative") == "부정"
    assert label_name(Say("ko"), "IT과학") == "IT과학"
