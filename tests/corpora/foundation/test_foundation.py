"""The ground floor: hints, recipes, atomic files, command lines, registries."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import Field

from corpora.foundation import command
from corpora.foundation.command import ArgumentParser, run_command
from corpora.foundation.config import Config, discover, load_recipe, validate
from corpora.foundation.errors import DataError, RecipeError, ResultError, SuiteError, UsageError, suggest
from corpora.foundation.files import atomic_file, code_digest, fingerprint, sha256, syntax_of, write_json, write_text

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]


class LoopConfig(Config):
    """A nested section of a recipe."""

    steps: int = Field(default=10, ge=1)
    peak_lr: float = 1e-4


class RecipeConfig(Config):
    """What a recipe fills in."""

    objective: str = "mlm"
    loop: LoopConfig = LoopConfig()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_an_error_is_one_line_of_where_what_and_fix() -> None:
    assert str(SuiteError(Path("a/b.csv"), "two\n lines", "do\tthis")) == "a/b.csv: two lines; do this"


def test_nearest_names_the_closest_choice_or_all_of_them(subtests: pytest.Subtests) -> None:
    for name, hint in [
        ("korqad", "did you mean 'korquad'?"),
        ("KLUE-NLI", "did you mean 'klue-nli'?"),
        ("xyz", "choose from: klue-nli, korquad, nsmc"),
    ]:
        with subtests.test(name=name, hint=hint):
            assert suggest(name, ["nsmc", "korquad", "klue-nli"]) == hint


def test_a_recipe_holds_only_departures_from_the_defaults(write: Write) -> None:
    recipe = load_recipe(write("r.toml", 'objective = "sop"\nloop = { steps = 2_000 }'), RecipeConfig)
    assert recipe == RecipeConfig(objective="sop", loop=LoopConfig(steps=2_000, peak_lr=1e-4))


def test_a_wrong_recipe_is_one_line_naming_file_and_key(write: Write, fails: Fails, subtests: pytest.Subtests) -> None:
    for text, what in [
        ('objektive = "sop"', "unknown key 'objektive'; did you mean 'objective'?"),
        ("loop = { stpes = 3 }", "unknown key 'loop.stpes'; did you mean 'steps'?"),
        ("loop = { steps = 'many' }", "loop.steps='many'"),
        ("loop = { steps = 0 }", "loop.steps=0: Input should be greater than or equal to 1"),
        ("objective = ", "not a TOML file"),
        (b"objective = '\xb0\xa1'", "not a TOML file"),
    ]:
        with subtests.test(text=text, what=what):
            path = write("r.toml", text)
            with fails(RecipeError, f"{path}: ", what):
                load_recipe(path, RecipeConfig)


def test_a_missing_recipe_and_a_folder_are_one_line(tmp_path: Path, fails: Fails) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with fails(RecipeError, f"{path}: "):
            load_recipe(path, RecipeConfig)


def test_validate_names_the_place_it_was_given(fails: Fails) -> None:
    with fails(RecipeError, "--set: ", "did you mean 'loop'?"):
        validate(RecipeConfig, {"lop": {}}, "--set")


def test_an_atomic_file_makes_its_folder_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    write_text(path, "한글\n")
    assert path.read_bytes() == "한글\n".encode()
    assert names(path.parent) == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_old_content_is_seen_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with atomic_file(path, "wb") as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_an_exception_while_writing_leaves_the_old_file_and_no_scratch(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def break_off() -> None:
        with atomic_file(path) as file:
            file.write("half of the n")
            raise KeyError

    with pytest.raises(KeyError):
        break_off()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_is_one_line_and_leaves_the_old_file(
    tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with fails(ResultError, f"{path}: ", "No space left on device", "--out"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_place_that_cannot_be_written_is_one_line(write: Write, fails: Fails) -> None:
    path = write("file", "") / "below" / "a.txt"
    with fails(ResultError, f"{path}: ", "cannot write"):
        write_text(path, "x")


def test_json_refuses_what_is_no_json_and_keeps_the_old_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for value in [float("nan"), float("inf"), {"a": [1.0, float("-inf")]}]:
        with subtests.test(value=value):
            path = tmp_path / "a.json"
            write_json(path, {"점수": 1.0})
            with pytest.raises(ValueError, match="JSON"):
                write_json(path, value)
            assert names(tmp_path) == ["a.json"]
            assert json.loads(path.read_text(encoding="utf-8")) == {"점수": 1.0}
            assert "점수" in path.read_text(encoding="utf-8")


def test_a_fingerprint_depends_on_values_not_on_key_order() -> None:
    assert fingerprint({"a": 1, "나": [1, 2]}) == fingerprint({"나": [1, 2], "a": 1})
    assert len({fingerprint(value) for value in ({"a": 1}, {"a": 2}, {"b": 1}, [1, 2], [2, 1], "1", 1)}) == 7


def test_sha256_reads_several_files_as_one(write: Write) -> None:
    parts = [write("a", b"ab"), write("b", b"c")]
    assert sha256(*parts) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180: "abc"


CODE = '''
"""What it does."""
def f(x: int) -> int:
    """Double."""
    return 2 * x
'''


def test_only_what_python_runs_counts_as_code() -> None:
    cases = {
        "docstring": (CODE.replace("Double.", "Return twice X."), True),
        "layout": (CODE.replace("    return 2 * x", "    # so\n    return (2 *\n        x)"), True),
        "import": ("from corpora import documents\n" + CODE, True),
        "number": (CODE.replace("2 * x", "3 * x"), False),
        "text": (CODE.replace("2 * x", "'2 * x'"), False),
    }
    for name, (changed, is_same) in cases.items():
        assert (syntax_of(CODE) == syntax_of(changed)) == is_same, name
    assert code_digest(["corpora.overlap", "eval"]) == code_digest(["eval", "corpora.overlap"]) != code_digest(["eval"])


def test_discover_collects_public_modules_by_the_name_of_their_constant(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("zoo_of_tests/__init__.py", "")
    write("zoo_of_tests/_hidden.py", "raise RuntimeError('a private module was imported')")
    for module, name in {"cat": "고양이", "dog": "개"}.items():
        write(f"zoo_of_tests/{module}.py", f"class ANIMAL: name = '{name}'")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = ModuleType("zoo_of_tests")
    package.__path__ = [str(tmp_path / "zoo_of_tests")]
    found = discover(package, "ANIMAL")
    assert {name: entry.__module__ for name, entry in found.items()} == {
        "고양이": "zoo_of_tests.cat",
        "개": "zoo_of_tests.dog",
    }


def parser() -> ArgumentParser:
    arguments = ArgumentParser("python -m tool", "A tool.")
    arguments.add_argument("--models", nargs="*", default=[])
    arguments.add_argument("--seeds", type=int, default=1)
    return arguments


def test_options_take_lists_and_defaults() -> None:
    known = parser().parse(["--models", "a", "b"])
    assert (known.models, known.seeds, known.verbose) == (["a", "b"], 1, False)


def test_a_wrong_option_is_one_line_with_the_nearest_real_one(fails: Fails, subtests: pytest.Subtests) -> None:
    for argv, what in [
        (["--modles", "a"], "unknown option '--modles'; did you mean '--models'?"),
        (["--model", "a"], "unknown option '--model'; did you mean '--models'?"),
        (["--modles=a"], "did you mean '--models'?"),
        (["--seeds", "many"], "invalid int value: 'many'"),
    ]:
        with subtests.test(argv=argv, what=what), fails(UsageError, "python -m tool: ", what):
            parser().parse(argv)


def test_a_command_turns_a_suite_error_into_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def main(argv: list[str] | None) -> int:
        assert argv is None
        raise DataError("a.csv:3", "empty\ndocument", "fill it")

    with pytest.raises(SystemExit) as exit_:
        run_command(main)
    assert exit_.value.code == 2
    assert capsys.readouterr() == ("", "a.csv:3: empty document; fill it\n")


@pytest.mark.parametrize("code", [command.EXIT_DONE, command.EXIT_FAILED_CELLS])
def test_a_command_s_own_code_is_the_process_s(code: int) -> None:
    with pytest.raises(SystemExit) as exit_:
        run_command(lambda _: code)
    assert exit_.value.code == code


def test_an_interrupted_command_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main(_: list[str] | None) -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as exit_:
        run_command(main)
    assert exit_.value.code == 130
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command(lambda _: 1 // 0)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = (
        "from corpora.foundation.command import run_command\n"
        "def main(_):\n"
        "    for k in range(100_000): print('한 줄', k)\n"
        "    return 0\n"
        "run_command(main)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "한 줄 0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_an_empty_path_is_not_the_current_folder(fails: Fails) -> None:
    parser = ArgumentParser("python -m tool", "A tool.")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    with fails(UsageError, "python -m tool", "--out is empty"):
        parser.parse(["--out", ""])
    with fails(UsageError, "python -m tool", "files is empty"):
        parser.parse(["a", ""])
    assert parser.parse(["a", "--out", "."]).out == Path()
