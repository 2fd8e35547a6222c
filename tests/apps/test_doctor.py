"""The doctor names what is installed, what runs, and where files lie; the exit code says whether the tools run."""

import json
from pathlib import Path

import pytest

from apps import doctor
from corpora.foundation.errors import CheckpointError
from downstream.runtimes.backends import BACKENDS


def test_the_findings_are_complete_and_true(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["machine"]["backends"]) == set(BACKENDS)
    assert found["packages"]["core"]["numpy"]
    assert {"encoder", "classifier", "embedder"} <= set(found["models"])
    assert all(model["size_bytes"] > 1_000_000 for model in found["models"].values())
    assert Path(found["places"]["bundled"]["path"]).is_dir()
    assert 0 <= found["official_files"]["present"] <= found["official_files"]["known"]
    assert all(tool["ok"] and tool["first_answer_s"] < 60 for tool in found["tools"].values())
    printed = doctor.describe(found)
    for needed in (found["pressbert"], "onnx-int8", found["places"]["data"]["path"], "first answer in"):
        assert needed in printed, needed


def test_a_broken_tool_and_a_missing_data_root_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise CheckpointError("classifier", "no classifier is bundled", "make it: make bundled")

    monkeypatch.setattr(doctor, "PROBES", {"classify": fail})
    monkeypatch.setenv("PRESSBERT_DATA", "/nowhere")
    assert doctor.main([]) == 2
    printed = capsys.readouterr().out
    assert "classifier: no classifier is bundled; make it: make bundled" in printed
    assert "PRESSBERT_DATA: '/nowhere' is not a folder" in printed


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "extras", lambda: {"train": ["surely-not-installed"], "serve": ["numpy"]})
    monkeypatch.setattr(doctor, "PROBES", {})
    printed = doctor.describe(doctor.examine())
    assert "train      missing: surely-not-installed  pip install 'pressbert[train]'" in printed
    assert "serve      installed" in printed
