"""The shape of the source, proven from its syntax trees: imports point left, none go round, importing does nothing."""

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("corpora", "pretraining", "downstream", "eval", "apps", "pressbert")
"""From left to right: a package imports itself and those before it."""
LARGEST_FOLDER = {"downstream": 20}
"""More Python files than 14: the faces of `downstream` are what people import and run."""
KNOWN_CYCLES: list[set[str]] = []
"""To be resolved; none may be added."""
KNOWN_LONG_FILES: set[str] = set()
KNOWN_LONG_FUNCTIONS: set[str] = set()
FORBIDDEN_STEMS = {"utils", "util", "helpers", "helper", "common"}


@functools.cache
def parsed(source: str) -> ast.Module:
    """Parse a file once for all tests."""
    return ast.parse(source)


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
        for name in imported(ast.walk(parsed(source)), module)
        if name.split(".")[0] in PACKAGES[PACKAGES.index(module.split(".")[0]) + 1 :]
    ]


def not_for_types_alone(node: ast.AST) -> Iterator[ast.AST]:
    """Walk everything but `TYPE_CHECKING` branches: imports inside functions count."""
    yield node
    for child in node.orelse if is_guard(node, "TYPE_CHECKING") else ast.iter_child_nodes(node):
        yield from not_for_types_alone(child)


def import_cycles(modules: Mapping[str, str]) -> list[set[str]]:
    """Return the groups of modules that reach each other by imports, deferred ones counted."""

    def resolve(name: str) -> str | None:
        parts = name.split(".")
        names = (".".join(parts[:n]) + suffix for n in range(len(parts), 0, -1) for suffix in ("", ".__init__"))
        return next((known for known in names if known in modules), None)

    names = list(modules)
    number = {name: k for k, name in enumerate(names)}
    edges = [
        (number[module], number[target])
        for module, source in modules.items()
        for name in imported(not_for_types_alone(parsed(source)), module)
        if (target := resolve(name)) and target != module
    ]
    rows, columns = zip(*edges, strict=True) if edges else ((), ())
    graph = csr_array(([1] * len(edges), (rows, columns)), shape=(len(names), len(names)))
    count, group = connected_components(graph, directed=True, connection="strong")
    groups = [{name for name, k in zip(names, group, strict=True) if k == g} for g in range(count)]
    return [found for found in groups if len(found) > 1]


def prints_at_import(source: str) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "sys.stdout.write"}
        for node in run_at_import(parsed(source))
    )


def test_there_is_source_to_check_in_every_package() -> None:
    assert {name.split(".")[0] for name in sources()} == set(PACKAGES)


def test_imports_point_left() -> None:
    assert imports_to_the_right(sources()) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert [found for found in import_cycles(sources()) if found not in KNOWN_CYCLES] == []


def test_folders_and_files_are_small() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in paths)
    assert {folder: n for folder, n in folders.items() if n > LARGEST_FOLDER.get(folder, 14)} == {}
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in paths}
    assert {path: n for path, n in lengths.items() if n > 500 and path not in KNOWN_LONG_FILES} == {}


def test_functions_are_short() -> None:
    lengths = [
        (node.end_lineno - node.lineno + 1, f"{module}.{node.name}")
        for module, source in sources().items()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    assert [name for length, name in lengths if length > 80 and name not in KNOWN_LONG_FUNCTIONS] == []
    assert sorted(length for length, _ in lengths)[len(lengths) * 9 // 10] <= 30


def test_nothing_that_comes_with_a_package_is_found_by_the_place_of_a_module() -> None:
    """A module can then be moved. Files that are run by their path put the root on `sys.path` by their own place."""
    named = {name for name, source in sources().items() if "__file__" in source}
    assert named - {"eval.run_all", "apps.demo"} == set()


def is_config_file(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in {"config.json", "bert_config.json"}


def test_one_class_reads_the_config_of_model_folders() -> None:
    """`pretraining.folders` reads config.json, and `ModelFolder` shows it; others ask whether it is there."""
    named, asked = set(), set()
    for module, source in sources().items():
        nodes = list(ast.walk(parsed(source)))
        if not any(map(is_config_file, nodes)):
            continue
        named.add(module)
        questions = [
            node
            for node in nodes
            if isinstance(node, ast.Attribute) and node.attr == "is_file" and any(map(is_config_file, ast.walk(node)))
        ]
        if len(questions) == sum(map(is_config_file, nodes)):
            asked.add(module)
    assert named - asked == {"pretraining.folders"}
    assert {module.split(".")[0] for module in asked} <= {"pretraining"}


def test_no_kind_of_model_is_asked_for_outside_contestants() -> None:
    """A new kind is then one file of `eval/contestants/`. Corpora of a contamination check have other kinds."""
    asked = [
        f"{name}: {ast.unparse(node)}"
        for name, source in sources().items()
        if name.startswith("eval.") and not name.startswith(("eval.contestants.", "eval.contamination."))
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Compare | ast.Subscript | ast.Match)
        for part in ast.iter_child_nodes(node)
        if isinstance(part, ast.Attribute) and part.attr == "kind" and "all_kinds()" not in ast.unparse(node)
    ]
    assert asked == []


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    assert [name for name in sources() if name.split(".")[-1] in FORBIDDEN_STEMS] == []


def test_no_module_prints_while_it_is_imported() -> None:
    assert [name for name, source in sources().items() if prints_at_import(source)] == []


def test_importing_the_packages_is_silent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(PACKAGES)}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_checker_sees_an_import_to_the_right(subtests: pytest.Subtests) -> None:
    for source in [
        "import eval.cells.files",
        "import os, eval.cells.files as results",
        "from eval import results",
        "from eval.cells.files import Result",
        "def f():\n    from eval.cells.files import Result",
        "class A:\n    def f(self):\n        import apps",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from apps.clustering import cluster",
        "try:\n    import torch\nexcept ImportError:\n    import apps.demo",
        "import importlib\ndef f():\n    importlib.import_module('eval.cells.files')",
    ]:
        with subtests.test(source=source):
            assert len(imports_to_the_right({"downstream.task": source})) == 1


def test_the_checker_lets_other_imports_pass(subtests: pytest.Subtests) -> None:
    for source in ["import evaluate", "from corpora import suggest", "from . import metrics"]:
        with subtests.test(source=source):
            assert imports_to_the_right({"downstream.task": source}) == []


def test_the_checker_sees_a_cycle(subtests: pytest.Subtests) -> None:
    for back in [
        "import corpora.a",
        "from corpora import a",
        "from corpora.a import f",
        "from . import a",
        "from .a import f",
    ]:
        with subtests.test(back=back):
            modules = {"corpora.__init__": "", "corpora.a": "from corpora.b import x", "corpora.b": back}
            assert import_cycles(modules) == [{"corpora.a", "corpora.b"}]


def test_a_deferred_import_closes_a_cycle_and_one_for_types_alone_does_not() -> None:
    for deferred, cycles in (("def f():\n    ", [{"corpora.a", "corpora.b"}]), ("if TYPE_CHECKING:\n    ", [])):
        modules = {"corpora.a": "import corpora.b", "corpora.b": f"{deferred}import corpora.a"}
        assert import_cycles(modules) == cycles, deferred


def test_the_checker_tells_printing_on_import_from_printing_when_called(subtests: pytest.Subtests) -> None:
    for source, prints in [
        ("print('a')", True),
        ("if 1:\n    print('a')", True),
        ("class A:\n    print('a')", True),
        ("def f():\n    print('a')", False),
        ("if __name__ == '__main__':\n    print('a')", False),
    ]:
        with subtests.test(source=source, prints=prints):
            assert prints_at_import(source) == prints


OPENERS: dict[str, set[str]] = {
    "from_pretrained": {"pretraining.folders"},
    "torch.load": {"downstream.encoders.weights"},
    "zipfile.ZipFile": {"corpora.foundation.unpacking"},
    "zlib.decompressobj": {"apps.serving.bodies", "corpora.foundation.unpacking"},
    **{
        key: set()
        for key in ("zlib.decompress", "extractall", "unpack_archive", "yaml.load", "os.system", "eval", "exec")
    },
}
"""Calls that run code, follow a path in a file, or unpack without a cap → the only modules that may make them."""
UNPACKERS: dict[str, set[str]] = {
    **{key: {"corpora.foundation.unpacking"} for key in ("gzip", "lzma", "bz2")},
    "tarfile": {"corpora.foundation.unpacking"},
    **{key: set() for key in ("pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle")},
}
"""Libraries → the only modules that may import them."""
SWITCHES = {"SentenceTransformer": "trust_remote_code", "load": "allow_pickle"}
"""Calls that need a switch set to false: `np.load` may unpickle."""


def raw_calls(module: str, source: str) -> list[str]:
    """Return what a module does with foreign files that it must leave to their openers."""
    found = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            for raw, allowed in OPENERS.items():
                is_meant = name == raw or (name.endswith(f".{raw}") and raw not in {"eval", "exec"})
                if is_meant and module not in allowed:
                    found.append(f"{module}: {name}")
            if name == "torch.load" and "weights_only=True" not in ast.unparse(node):
                found.append(f"{module}: {name} without weights_only")
            is_switched = name in {"np.load", "numpy.load"} or name.split(".")[-1] == "SentenceTransformer"
            if is_switched and not any(word.arg == "modules" for word in node.keywords):
                switch = SWITCHES[name.split(".")[-1]]
                if f"{switch}=False" not in ast.unparse(node):
                    found.append(f"{module}: {name} without {switch}")
    names = {name.split(".")[0] for name in imported(not_for_types_alone(parsed(source)), module)}
    return found + [f"{module}: imports {name}" for name in names & UNPACKERS.keys() if module not in UNPACKERS[name]]


def test_foreign_files_are_opened_in_one_place() -> None:
    """See SECURITY.md: openers have the caps and checks, and a second way in would have none."""
    assert [call for module, source in sources().items() for call in raw_calls(module, source)] == []


def test_the_checker_sees_a_raw_call(subtests: pytest.Subtests) -> None:
    for source in [
        "from transformers import AutoModel\nAutoModel.from_pretrained(folder, trust_remote_code=False)",
        "import torch\ntorch.load(path, weights_only=True)",
        "import gzip",
        "def f():\n    import pickle",
        "from tarfile import open",
        "import zipfile\nzipfile.ZipFile(path)",
        "np.load(path)",
        "SentenceTransformer(folder)",
        "eval(text)",
        "archive.extractall(folder)",
    ]:
        with subtests.test(source=source):
            assert raw_calls("downstream.task", source) != []
    assert raw_calls("downstream.task", "model.eval()\nnp.load(path, allow_pickle=False)\ndocument.load()") == []
