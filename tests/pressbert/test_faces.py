"""The faces under one name are the functions of the packages, and are loaded at their first use."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import pressbert

ROOT = Path(__file__).resolve().parents[2]


def test_every_face_is_the_object_of_its_module() -> None:
    for name, place in pressbert.FACES.items():
        module, _, attribute = place.partition(":")
        assert getattr(pressbert, name) is getattr(importlib.import_module(module), attribute), name
        assert name in dir(pressbert), name


def test_type_checkers_see_the_same_faces() -> None:
    tree = ast.parse((ROOT / "pressbert" / "__init__.py").read_text(encoding="utf-8"))
    [guarded] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name: f"{node.module}:{alias.name}" for node in imports for alias in node.names}
    assert seen == pressbert.FACES


def test_importing_the_package_loads_no_face() -> None:
    code = "import sys, pressbert; print(sorted({'numpy', 'downstream', 'apps'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_face_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="sumarize"):
        pressbert.sumarize  # noqa: B018


def test_texts_are_labelled_with_probabilities() -> None:
    good, bad = pressbert.classify(["배우들 연기가 정말 좋았다", "시간이 아까운 영화다"])
    assert (good.label, bad.label) == ("positive", "negative")
    for found in (good, bad):
        assert found.probability == max(found.probabilities.values()) > 0.5
        assert sum(found.probabilities.values()) == pytest.approx(1)
    assert pressbert.classify([]) == []
    assert pressbert.Classifier.load().predict(["배우들 연기가 정말 좋았다"]) == ["positive"]
    with pytest.raises(ValueError, match=r"string"):
        pressbert.classify("배우들 연기가 정말 좋았다")
