"""The texts of the demo: every text that a page asks for exists, and no other; Korean is Korean, English is not."""

import ast
import re
from pathlib import Path

from apps.demo import PAGES
from apps.demo_pages.comment_models import COMMENT_MODELS
from apps.demo_pages.comments import label_name
from apps.demo_pages.inputs import KNOWN
from apps.demo_pages.model_cache import OPENERS
from corpora.boilerplate import KINDS
from corpora.foundation.texts import Texts, catalogue
from downstream.summaries.features import FEATURES

APPS = Path(__file__).parents[3] / "apps"
SOURCES = [APPS / "demo.py", *(APPS / "demo_pages").rglob("*.py"), *(APPS / "desk").glob("*.py")]
OTHER_PARTS = ("list", "heading", "question", "dateline", "headline", "email", "promotion")
KOREAN, ENGLISH = (
    {key.removeprefix("demo."): text for key, text in catalogue(language).items() if key.startswith("demo.")}
    for language in ("ko", "en")
)


def asked_for() -> tuple[set[str], set[str]]:
    """Return the literal keys that the sources ask for, and the patterns of those put together."""
    literal, patterns = set(), set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(str() as text) if text in KOREAN:
                    literal.add(text)
                case ast.Call(ast.Name("texts") | ast.Attribute(attr="texts"), [ast.Constant(str() as key), *_]):
                    literal.add(key)
                case ast.Call(ast.Name("texts") | ast.Attribute(attr="texts" | "get"), [ast.JoinedStr(parts), *_]):
                    texts = (re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in parts)
                    patterns.add("".join(texts))
    return literal, patterns


def test_korean_texts_are_korean_and_english_ones_are_not() -> None:
    examples = {key for key in KOREAN if ".example_" in key}
    assert [k for k, ko in KOREAN.items() if not re.search("[가-힣]", ko) and not k.startswith("download.")] == []
    hangul = {k for k, en in ENGLISH.items() if re.search("[가-힣]", en)} - examples
    assert hangul == {"summary.focus_hint", "answers.question_hint", "error.no_column", "error.no_column_seen"}


def test_every_text_that_is_asked_for_exists_and_no_other() -> None:
    literal, patterns = asked_for()
    assert literal - set(KOREAN) == set()
    unused = {key for key in KOREAN if key not in literal and not any(re.fullmatch(p, key) for p in patterns)}
    assert unused == set()


def test_names_that_come_from_elsewhere_have_texts() -> None:
    keys = [f"feature.{name}" for name in (*FEATURES, "focus")]
    keys += [f"part.{kind}" for kind in (*KINDS, *OTHER_PARTS)]
    keys += [f"{prefix}.{kind}" for kind in OPENERS for prefix in ("kind", "missing")]
    keys += [f"{page.name}.{part}" for page in PAGES for part in ("title", "lead")]
    keys += [key for _, key in KNOWN]
    keys += [f"comments.read_{entry.task}" for entry in COMMENT_MODELS]
    keys += [f"label.{entry.label}" for entry in COMMENT_MODELS]
    keys += [f"edit.{kind}" for kind in ("merge", "split", "rename", "pin", "take", "move")]
    assert [key for key in keys if key not in KOREAN] == []


def test_unknown_labels_stay_as_they_are() -> None:
    texts = Texts("ko", "demo")
    assert label_name(texts, "negative") == "부정"
    assert label_name(texts, "IT과학") == "IT과학"
