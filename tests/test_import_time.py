"""Importing what people import is fast, and loads neither torch nor transformers."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUDGETS_S = {"downstream.summarize": 0.3, "apps.clustering": 1.0}
"""CPU time of an import, NumPy's excluded."""
FACES = (
    *(f"downstream.{name}" for name in ("answer", "classify", "embed", "fill_mask", "summarize")),
    *(f"downstream.{name}" for name in ("bundle", "distill", "extractive", "finetune", "grid", "runtime", "task")),
    *(f"apps.{name}" for name in ("clustering", "serve", "stories", "summarize")),
    *(f"eval.{name}" for name in ("run_all", "study", "reference", "ceiling")),
)
HIDING = """
import sys
from importlib.machinery import PathFinder

class Finder:
    find_distributions = PathFinder.find_distributions

    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.split(".")[0] in NAMES else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
"""Makes packages as if they were not installed."""
TOOLS = """
from apps.clustering import ClusteringConfig, cluster
from apps.serving.services import Settings, load_services
from corpora.foundation.errors import SuiteError
from downstream.classify import Classifier
from downstream.embed import Embedder, encode
from downstream.encoders.hub import bundled
from downstream.encoders.weights import load_model
from downstream.runtime import fast_embedder
from downstream.summarize import summarize

article = "새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다. 하늘은 맑았다."
print(summarize(article, sentences=1, title="새 다리 개통, 버스 노선도 바뀐다"))
titles = ["누리호 발사대 기립", "누리호, 발사대에 기립", "한국형 발사체 누리호 발사대 기립", "첫눈 내린 고갯길"]
titles += ["한은, 기준금리 3.5% 동결", "한은 기준금리, 3.5% 동결", "금통위, 기준금리 3.5%로 또 동결"]
print(len(cluster(titles, ClusteringConfig(min_size=3)).stories))
classifier = Classifier.load(runtime="onnx-int8")
[probabilities] = classifier.probabilities(["배우들 연기가 정말 좋았다"])
print(classifier.labels[probabilities.argmax()])
print(encode(["새 다리가 열렸다", "다리가 개통됐다"]).shape)
print(fast_embedder(Embedder.load(), "onnx-int8")[1].name)
load_services(Settings(tools={"summarize": "bundled", "classify": "bundled"}, runtime="onnx-fp32"))
try:
    load_model(bundled("encoder"), None, "AutoModel", {})
except SuiteError as error:
    print(error)
"""
"""What newsrooms run, down to the refusal of what needs PyTorch."""
HEAVY = {"torch", "transformers", "sentence_transformers"}


def run(code: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_no_face_imports_torch_or_transformers() -> None:
    code = f"import importlib, sys\nfor name in {FACES}:\n    importlib.import_module(name)\n"
    code += f"    print(name, sorted({HEAVY} & set(sys.modules)))"
    assert run(code).splitlines() == [f"{name} []" for name in FACES]


def test_the_tools_work_where_no_package_of_an_extra_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    light = {re.split("[>=]", entry)[0] for entry in project["dependencies"]}
    lists = [project["optional-dependencies"][extra] for extra in ("train", "eval", "kernels", "scale")]
    optional = {re.split("[>=]", entry)[0] for entries in lists for entry in entries} - {"pressbert[train]", "protobuf"}
    assert HEAVY - {"sentence_transformers"} <= optional
    assert not optional & light
    names = sorted(name.replace("-", "_") for name in optional)
    lines = run(HIDING.replace("NAMES", repr(names)) + TOOLS).splitlines()
    assert lines[:5] == ["시는 다음 달 버스 노선을 바꿀 계획이다.", "2", "positive", "(2, 256)", "onnx-int8"]
    assert re.fullmatch(r"torch: not installed; pip install '\S+'", lines[5])


@pytest.mark.slow
def test_imports_stay_within_their_budgets() -> None:
    for module, budget_s in BUDGETS_S.items():
        code = f"import time, numpy; start = time.process_time(); import {module}; print(time.process_time() - start)"
        fastest_s = min(float(run(code)) for _ in range(3))
        assert fastest_s <= budget_s, f"{module}: {fastest_s:.2f} s"
