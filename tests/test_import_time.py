"""Importing what people import is fast, and loads neither torch nor transformers."""

import subprocess
import sys
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
HEAVY = {"torch", "transformers", "sentence_transformers"}


def run(code: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_no_face_imports_torch_or_transformers() -> None:
    code = f"import importlib, sys\nfor name in {FACES}:\n    importlib.import_module(name)\n"
    code += f"    print(name, sorted({HEAVY} & set(sys.modules)))"
    assert run(code).splitlines() == [f"{name} []" for name in FACES]


@pytest.mark.slow
def test_imports_stay_within_their_budgets() -> None:
    for module, budget_s in BUDGETS_S.items():
        code = f"import time, numpy; start = time.process_time(); import {module}; print(time.process_time() - start)"
        fastest_s = min(float(run(code)) for _ in range(3))
        assert fastest_s <= budget_s, f"{module}: {fastest_s:.2f} s"
