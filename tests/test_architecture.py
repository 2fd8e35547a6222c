"""The shape of the source, proven from its syntax trees: imports point left, none go round, importing does nothing."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("corpora", "pretraining", "downstream", "eval", "apps")
"""From left to right: a package imports itself and those before it."""
FORBIDDEN_STEMS = {"utils", "util", "helpers", "helper", "common"}


def sources() -> dict[str, str]:
    """Return the source of every module of ours by its dotted name; a package is called `package.__init__`."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8") for path in paths}


def is_guard(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.test))


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what is executed on import: no function bodies, no `TYPE_CHECKING` or `__main__` branches."""
    yield node
    if is_guard(node, "TYPE_CHECKING") or is_guard(node, "__name__"):
        children = list(node.orelse)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        children = []
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from run_at_import(child)


def imported(nodes: Iterator[ast.AST], module: str) -> Iterator[str]:
    """Yield the absolute dotted names that NODES of MODULE import, relative and literal dynamic imports included."""
    for node in nodes:
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(base, names, level):
                parents = module.split(".")[:-level] if level else []
                yield from (".".join([*parents, *([base] if base else []), alias.name]) for alias in names)
            case ast.Call(
                ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
                [ast.Constant(str() as name), *_],
            ):
                yield name


def imports_to_the_right(modules: Mapping[str, str]) -> list[str]:
    """Return `module → import` for every import, wherever it stands, of a package to the right."""
    return [
        f"{module} → {name}"
        for module, source in modules.items()
        for name in imported(ast.walk(ast.parse(source)), module)
        if name.split(".")[0] in PACKAGES[PACKAGES.index(module.split(".")[0]) + 1 :]
    ]


def import_cycle(modules: Mapping[str, str]) -> list[str]:
    """Return a chain of modules that import each other while being imported, or nothing."""

    def resolve(name: str) -> str | None:
        parts = name.split(".")
        names = (".".join(parts[:n]) + suffix for n in range(len(parts), 0, -1) for suffix in ("", ".__init__"))
        return next((known for known in names if known in modules), None)

    graph = {
        module: {target for name in imported(run_at_import(ast.parse(source)), module) if (target := resolve(name))}
        for module, source in modules.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def prints_at_import(source: str) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "sys.stdout.write"}
        for node in run_at_import(ast.parse(source))
    )


def test_there_is_source_to_check_in_every_package() -> None:
    assert {name.split(".")[0] for name in sources()} == set(PACKAGES)


def test_imports_point_left() -> None:
    assert imports_to_the_right(sources()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert import_cycle(sources()) == []


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert [name for name in sources() if name.split(".")[-1] in FORBIDDEN_STEMS] == []


def test_no_module_prints_while_it_is_imported() -> None:
    assert [name for name, source in sources().items() if prints_at_import(source)] == []


def test_importing_the_packages_is_silent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(PACKAGES)}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "source",
    [
        "import eval.cells.files",
        "import os, eval.cells.files as results",
        "from eval import results",
        "from eval.cells.files import Result",
        "def f():\n    from eval.cells.files import Result",
        "class A:\n    def f(self):\n        import apps",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from apps.clustering import cluster",
        "try:\n    import torch\nexcept ImportError:\n    import apps.demo",
        "import importlib\ndef f():\n    importlib.import_module('eval.cells.files')",
    ],
)
def test_the_checker_sees_an_import_to_the_right(source: str) -> None:
    assert len(imports_to_the_right({"downstream.task": source})) == 1


@pytest.mark.parametrize("source", ["import evaluate", "from corpora import nearest", "from . import metrics"])
def test_the_checker_lets_other_imports_pass(source: str) -> None:
    assert imports_to_the_right({"downstream.task": source}) == []


@pytest.mark.parametrize(
    "back",
    ["import corpora.a", "from corpora import a", "from corpora.a import f", "from . import a", "from .a import f"],
)
def test_the_checker_sees_a_cycle(back: str) -> None:
    modules = {"corpora.__init__": "", "corpora.a": "from corpora.b import x", "corpora.b": back}
    assert set(import_cycle(modules)) == {"corpora.a", "corpora.b"}


@pytest.mark.parametrize("deferred", ["def f():\n    ", "if TYPE_CHECKING:\n    "])
def test_a_deferred_import_closes_no_cycle(deferred: str) -> None:
    assert import_cycle({"corpora.a": "import corpora.b", "corpora.b": f"{deferred}import corpora.a"}) == []


@pytest.mark.parametrize(
    ("source", "prints"),
    [
        ("print('a')", True),
        ("if 1:\n    print('a')", True),
        ("class A:\n    print('a')", True),
        ("def f():\n    print('a')", False),
        ("if __name__ == '__main__':\n    print('a')", False),
    ],
)
def test_the_checker_tells_printing_on_import_from_printing_when_called(source: str, prints: bool) -> None:
    assert prints_at_import(source) == prints
