"""Publishing: what is uploaded, what is refused, and that a dry run does nothing."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries

from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from downstream.encoders.folder import BUNDLED
from downstream.encoders.hub import bundled
from downstream.publish import HUB_DATASETS, _licence_errors, main, prepare, push, write
from downstream.task import all_tasks

Fails = Callable[..., AbstractContextManager[None]]
REPO = "newsroom/nsmc-bert"


class FakeHub:
    """Records calls and the uploaded files."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.files: dict[str, bytes] = {}

    def create_repo(self, repo: str, **_: Any) -> None:
        self.calls.append(f"create {repo}")

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        root = Path(folder_path)
        self.calls.append(f"upload {repo_id}: {commit_message}")
        self.files = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        return f"https://hub.example/{repo_id}"


def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundled("classifier"), tmp_path / "model"))


def test_the_bundled_classifier_can_be_published_as_it_is() -> None:
    found = prepare(bundled("classifier"), REPO)
    assert found.errors == ()
    [entry] = parse_eval_result_entries(yaml.safe_load(found.eval_results))
    measured = json.loads((BUNDLED / "MANIFEST.json").read_text(encoding="utf-8"))["classifier"]["metrics"]["accuracy"]
    assert (entry.dataset_id, entry.task_id, entry.value) == ("e9t/nsmc", "default", pytest.approx(measured))
    assert ".eval_results/pressbert.yaml: the hub shows them once the data set is a benchmark" in " ".join(found.notes)
    assert {path.name for path in found.files} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    hub = FakeHub()
    assert push(found, api=hub) == f"https://hub.example/{REPO}"
    assert hub.calls == [f"create {REPO}", f"upload {REPO}: Upload a model of PressBERT"]
    assert set(hub.files) == {path.name for path in found.files} | {"README.md", ".eval_results/pressbert.yaml"}
    card = ModelCard(hub.files["README.md"].decode())
    assert card.data.license == "cc-by-sa-4.0"
    assert [result.metric_value for result in card.data.eval_results or []] == [pytest.approx(measured)]


def test_a_dry_run_uploads_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(tmp_path)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main([str(folder), "--repo", REPO]) == 0
    printed = capsys.readouterr()
    assert "dry run: nothing was uploaded" in printed.err
    assert "model.safetensors" in printed.out
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(tmp_path.iterdir()) == [folder]


def test_records_hidden_files_and_code_are_not_uploaded(tmp_path: Path, fails: Fails) -> None:
    folder = copied(tmp_path)
    for name in ("result.json", "manifest.json", "modeling.py", "pytorch_model.bin", ".secret.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    found = prepare(folder, REPO)
    assert {path.name for path in found.files} & {"result.json", "modeling.py", "pytorch_model.bin"} == set()
    assert any("result.json" in note and "modeling.py" in note for note in found.notes)
    write(found, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} & {".secret.json", "modeling.py"} == set()
    with fails(ResultError, tmp_path / "out", "the folder is not empty", "--out"):
        write(found, tmp_path / "out")


def test_what_stands_in_the_way_is_named(tmp_path: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    def with_config(folder: Path, **entries: Any) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | entries), encoding="utf-8")

    card = "---\nlicense: other\n---\n"
    cases: list[tuple[str, Callable[[Path], Any], str]] = [
        ("no weights", lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        ("code", lambda folder: with_config(folder, auto_map={"AutoModel": "modeling.Model"}), "auto_map"),
        ("path", lambda folder: with_config(folder, _name_or_path="/home/kim/runs/x"), "/home/kim/runs/x"),
        ("licence", lambda folder: (folder / "README.md").write_text(card, encoding="utf-8"), "give --license"),
        ("no derivatives", lambda folder: with_config(folder, finetuning_task="korquad"), "allows no adaptations"),
        ("share alike", lambda folder: with_config(folder, finetuning_task="klue-sts"), "license_id=mit"),
    ]
    for name, break_it, expected in cases:
        with subtests.test(name=name):
            folder = copied(tmp_path / name)
            break_it(folder)
            found = prepare(folder, REPO, license_id="mit" if name == "share alike" else None)
            errors = " ".join(found.errors)
            assert ("asks for the same licence" if name == "share alike" else expected) in errors
            with fails(UsageError, "--push"):
                push(found, api=FakeHub())
    assert prepare(copied(tmp_path / "again"), REPO, accepted=("nsmc",)).errors == ()


def test_licences_of_data_decide() -> None:
    for license_id, data, is_right in (
        ("cc-by-sa-4.0", "CC-BY-SA-4.0", True),
        ("apache-2.0", "CC-BY-SA-4.0", False),
        ("apache-2.0", "CC0-1.0", True),
        ("mit", "CC BY-NC 4.0", False),
        ("cc-by-nc-4.0", "CC BY-NC 4.0", True),
        ("cc-by-nd-4.0", "CC BY-ND 2.0 KR", False),
        ("other", "CC0-1.0", False),
        ("", "CC0-1.0", False),
    ):
        assert (_licence_errors(license_id, {"task": data}, ()) == []) is is_right, (license_id, data)
    assert _licence_errors("mit", {"task": "CC-BY-ND-4.0"}, ("task",)) == []


def test_wrong_arguments_are_named(tmp_path: Path, fails: Fails) -> None:
    with fails(UsageError, "--repo", "'nsmc' is not OWNER/NAME"):
        prepare(bundled("classifier"), "nsmc")
    with fails(UsageError, "--license", "'CC BY' is no licence id"):
        prepare(bundled("classifier"), REPO, license_id="CC BY")
    with fails(CheckpointError, tmp_path, "no model in it"):
        prepare(tmp_path, REPO)


def test_known_data_sets_are_of_official_tasks() -> None:
    assert {name for name in HUB_DATASETS if name not in all_tasks() or not all_tasks()[name].is_official} == set()
