"""The choice of a backend: the fastest that agrees wins, is explained and remembered."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import downstream.runtimes.backends
import downstream.runtimes.probes
import downstream.runtimes.selection
from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from downstream.runtime import Runtime, main
from downstream.runtimes.backends import BACKENDS, REFERENCE, backends_for, has_int8_units, unsupported_reason
from downstream.runtimes.network import Network
from downstream.runtimes.probes import ProbeInputs
from downstream.runtimes.selection import Choice, choose, runtime_cache

Fails = Callable[..., AbstractContextManager[None]]
Folders = Callable[..., Path]


@dataclass
class Bench:
    """Fake backends with stated speeds and answers; counts how often anything was measured."""

    network: Network
    opened: list[str]
    root: Path

    def choose(self, word: str = "auto", **options: Any) -> Choice:
        return choose(self.network, word, root=self.root, **options)[0]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Bench]:
    """Return a function that sets up a bench: backend → (milliseconds, share of wrong answers), exception or reason."""

    def set_up(**backends: tuple[float, float] | Exception | str) -> Bench:
        speeds = {name.replace("_", "-"): value for name, value in backends.items()}
        inputs = [{"input_ids": np.array([[k]], dtype=np.int64)} for k in range(100)]

        def agreement(reference: Any, other: Any) -> float:
            return float(np.mean([a.argmax() == b.argmax() for a, b in zip(reference, other, strict=True)]))

        def never() -> Any:
            raise AssertionError("the fake backends load nothing")

        def probe() -> ProbeInputs:
            return ProbeInputs(inputs, agreement)

        network = Network("folder", "d" * 64, ("input_ids",), "labels", never, never, probe)
        opened: list[str] = []
        now = [0.0]

        def open_backend(name: str, *_: Any, **__: Any) -> Any:
            opened.append(name)
            speed = speeds[name]
            if isinstance(speed, Exception):
                raise speed
            assert not isinstance(speed, str)
            milliseconds, wrong = speed

            def run(batch: Mapping[str, Any]) -> Any:
                now[0] += milliseconds / 1000
                label = 1 if batch["input_ids"][0, 0] < 100 * wrong else 0
                return np.array([[1 - label, label]], dtype=np.float32)

            return run

        def reason(name: str) -> str:
            speed = speeds.get(name, "not here")
            return speed if isinstance(speed, str) else ""

        monkeypatch.setattr(downstream.runtimes.selection, "open_backend", open_backend)
        monkeypatch.setattr(downstream.runtimes.selection.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(downstream.runtimes.selection, "unsupported_reason", reason)
        return Bench(network, opened, tmp_path / "cache")

    return set_up


def test_the_fastest_backend_that_agrees_wins(bench: Callable[..., Bench]) -> None:
    found = bench(torch=(10, 0), onnx_fp32=(2, 0.01), onnx_int8=(1, 0.02)).choose()
    assert found.chosen == "onnx-fp32"
    rows = {row.name: row for row in found.candidates}
    assert set(rows) == set(BACKENDS)
    assert rows["onnx-int8"].status == "disagrees"
    assert rows["onnx-int8"].agreement == pytest.approx(0.98)
    assert rows["onnx-fp32"].agreement == pytest.approx(0.99)
    assert rows["onnx-fp32"].median_ms == pytest.approx(2)
    assert rows["onnx-fp32"].max_deviation == 1
    assert rows["numba-int8"].status == "unavailable"
    assert bench(torch=(1, 0), onnx_fp32=(4, 0), onnx_int8=(3, 0)).choose("onnx").chosen == "onnx-int8"


def test_what_is_compiled_at_every_start_must_be_faster_by_a_tenth(bench: Callable[..., Bench]) -> None:
    for compiled_ms, chosen in ((2.1, "onnx-int8"), (1.9, "onnx-int8"), (1.8, "numba-int8")):
        found = bench(torch=(10, 0), onnx_int8=(2, 0), numba_int8=(compiled_ms, 0)).choose(again=True)
        assert found.chosen == chosen, compiled_ms
        alone = bench(torch=(10, 0), numba_int8=(compiled_ms, 0)).choose(again=True)
        assert alone.chosen == "numba-int8", compiled_ms


def test_a_backend_that_fails_is_explained_and_passed_over(bench: Callable[..., Bench]) -> None:
    found = bench(
        torch=(10, 0),
        onnx_fp32=CheckpointError("folder", "odd weights", "no"),
        onnx_int8=RuntimeError("odd node"),
        numba_int8="numba not installed",
    ).choose()
    assert found.chosen == REFERENCE
    table = found.table()
    assert all(part in table for part in ("odd weights", "RuntimeError: odd node", "numba not installed", "chosen"))
    assert table.count("\n| ") == len(BACKENDS) + 2


def test_no_backend_that_agrees_is_an_error(bench: Callable[..., Bench], fails: Fails) -> None:
    with fails(CheckpointError, "folder", "no onnx runtime will do", "disagrees", 'runtime="torch"'):
        bench(torch=(1, 0), onnx_fp32=(4, 0.5)).choose("onnx")


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_a_choice_is_remembered(bench: Callable[..., Bench]) -> None:
    fake = bench(torch=(10, 0), onnx_fp32=(4, 0))
    first = fake.choose()
    fake.opened.clear()
    second = fake.choose()
    assert fake.opened == ["onnx-fp32"]
    assert second == first.model_copy(update={"is_remembered": True})
    assert "remembered" in second.table()


def test_what_may_change_the_choice_has_it_measured_again(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = bench(torch=(10, 0), onnx_fp32=(4, 0))
    fake.choose()

    def measured(**options: Any) -> set[str]:
        fake.opened.clear()
        fake.choose(**options)
        return set(fake.opened)

    assert measured() == {"onnx-fp32"}
    assert measured(threads=2) == measured(again=True) == {"torch", "onnx-fp32"}
    fake.network = replace(fake.network, digest="e" * 64)
    assert measured() == {"torch", "onnx-fp32"}
    monkeypatch.setattr(downstream.runtimes.selection.metadata, "version", lambda _: "99")
    assert measured() == {"torch", "onnx-fp32"}


def test_a_damaged_memory_is_made_again(bench: Callable[..., Bench]) -> None:
    fake = bench(torch=(10, 0), onnx_fp32=(4, 0))
    fake.choose()
    (path,) = (fake.root / "choices").iterdir()
    unknown = path.read_text(encoding="utf-8").replace('"chosen": "onnx-fp32"', '"chosen": "cuda"').encode()
    for content in (b"", b"{", b"\xff\xfe", b'{"chosen": "onnx-fp32"}', unknown):
        path.write_bytes(content)
        fake.opened.clear()
        assert fake.choose().is_remembered is False, content
        assert set(fake.opened) == {"torch", "onnx-fp32"}
        assert fake.choose().is_remembered is True


def test_an_unwritable_cache_is_explained(bench: Callable[..., Bench], fails: Fails) -> None:
    fake = bench(torch=(10, 0), onnx_fp32=(4, 0))
    fake.root.mkdir()
    (fake.root / "choices").write_text("in the way")
    with fails(ResultError, fake.root / "choices", "XDG_CACHE_HOME"):
        fake.choose()


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's cache of its own, and make measuring short."""
    monkeypatch.setattr(downstream.runtimes.selection, "TIMING_S", 0.05)
    monkeypatch.setattr(downstream.runtimes.probes, "NUM_PROBES", 60)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return runtime_cache()


def test_from_folder_to_choice_and_table(
    folders: Folders, user_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folders("klue-nli-sample")
    first = Runtime.load(folder)
    rows = {row.name: row for row in first.choice.candidates}
    assert set(rows) == set(BACKENDS)
    for name in ("torch", "onnx-fp32"):
        assert rows[name].status == "agrees"
        assert rows[name].agreement == 1.0
    assert all(row.reason for row in rows.values() if row.status in ("failed", "unavailable"))
    assert first.choice.num_inputs == 60
    # Nothing is there that could hold code.
    assert {path.suffix for path in user_cache.rglob("*") if path.is_file()} == {".json"}
    again = Runtime.load(folder)
    assert (again.name, again.choice.is_remembered) == (first.name, True)
    assert main([str(folder)]) == 0
    table = capsys.readouterr().out
    assert table.startswith(f"runtime=auto: {first.name} ")
    assert table.count("chosen") == 1
    assert main([str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == again.choice.model_dump(mode="json")


# --- words, and what this machine has ---------------------------------------------------------------------------------


def test_words_stand_for_what_they_say(folders: Folders, fails: Fails) -> None:
    assert backends_for("torch") == ("torch",)
    assert backends_for("onnx") == ("onnx-fp32", "onnx-int8")
    assert set(backends_for("auto")) == set(BACKENDS) == {"torch", "onnx-fp32", "onnx-int8", "numba-int8"}
    for word in ("tensorrt", "onx", "", "onnx-int9"):
        with fails(UsageError, "runtime", f"unknown runtime '{word}'", "onnx" if word.startswith("on") else ""):
            Runtime.load(folders("nsmc-sample"), word)


def test_a_missing_package_is_named_with_the_remedy(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    real = downstream.runtimes.backends.importlib.util.find_spec
    monkeypatch.setattr(
        downstream.runtimes.backends.importlib.util, "find_spec", lambda name: None if name == "numba" else real(name)
    )
    with fails(UsageError, "runtime numba-int8", "numba not installed", "pip install 'pressbert[kernels]'"):
        Runtime.load(folders("nsmc-sample"), "numba-int8")


def test_the_processor_decides_over_bits_and_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="pip install 'pressbert[kernels]'")
    for capabilities, int8, kernels in (
        ({"architecture": "x86_64", "avx2": True}, False, False),
        ({"architecture": "x86_64", "avx512_vnni": True}, True, True),
        ({"architecture": "x86_64", "avx_vnni": True}, True, False),
        ({"architecture": "x86_64", "amx_int8": True}, True, False),
        ({"architecture": "aarch64"}, True, False),
    ):
        monkeypatch.setattr(downstream.runtimes.backends, "cpu_capabilities", lambda found=capabilities: found)
        assert has_int8_units() is int8, capabilities
        assert (unsupported_reason("numba-int8") == "") is kernels, capabilities
        assert not any(unsupported_reason(name) for name in ("torch", "onnx-fp32", "onnx-int8"))
