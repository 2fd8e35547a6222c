"""The benchmark of GPUs: the code that it runs there, on a CPU at a tiny shape, and its page."""

from pathlib import Path

import pytest

import benchmarks.gpu
from benchmarks.gpu import PAGE, SET_UPS, TINY, main, make_text, measure, page, run_apart


def test_every_set_up_runs_at_a_tiny_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr("pretraining.training.loop.matmul_flops_per_s", lambda *_, **__: 1e12)
    monkeypatch.setattr("corpora.foundation.machine.matmul_flops_per_s", lambda *_, **__: 1e12)
    make_text(tmp_path, TINY)
    assert len((tmp_path / "text.jsonl").read_text(encoding="utf-8").splitlines()) == TINY.num_texts
    for name, set_up in SET_UPS.items():
        if set_up.compile or name == "modernbert-trainer":  # needs a minute and a compiler; differs in the class only
            continue
        with subtests.test(set_up=name):
            figures = measure(set_up, tmp_path, TINY, 0.01)
            assert figures["tokens_per_s"] > 0
            if not set_up.is_trainer:
                assert figures["rows_at_a_time"] == TINY.batch_size
                assert figures["matmul_share"] > 0


def test_the_page_shows_what_was_measured_and_what_was_not() -> None:
    results = {name: {"tokens_per_s": 1000.0, "device": "GPU X", "peak_gb": 9.5} for name in SET_UPS}
    results["bert-ours"] |= {"tokens_per_s": 2500.0, "matmul_share": 0.5, "matmul_tflops_per_s": 700.0}
    results["bert-ours"]["rows_at_a_time"] = 64
    results["modernbert-ours"] = {"failed": "longer than 150 s"}
    text = page(results, is_measured=True, elapsed_s=400)
    assert "| bert | `pretraining.run` | 2,500 | 2.50 | 50.0 % | 9.5 GB | 64 |" in text
    assert "| modernbert | `pretraining.run` | not measured: longer than 150 s |" in text
    assert "GPU X; matrix products reach 700 TFLOP/s in bf16; 400 s in all" in text
    nothing = page(results, is_measured=False, elapsed_s=1)
    assert "**Not measured**" in nothing
    assert "2,500" not in nothing
    assert nothing.count("| not measured |") == len(SET_UPS)


def test_what_fails_or_has_no_time_is_named(tmp_path: Path) -> None:
    assert run_apart("bert-ours", tmp_path, 20.0, 5.0) == {"failed": "no time left"}


def test_without_a_gpu_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def run(name: str, work: Path, seconds: float, limit_s: float) -> dict[str, float]:
        assert (work / "text.jsonl").is_file(), name
        limits.append(limit_s)
        return {"tokens_per_s": seconds}

    monkeypatch.setattr(benchmarks.gpu, "run_apart", run)
    monkeypatch.setattr(benchmarks.gpu, "has_gpu", lambda: False)
    assert main(["--out", str(tmp_path / "gpu.md"), "--budget", "400"]) == 0
    assert len(limits) == len(SET_UPS)
    assert max(limits) <= 150
    assert "**Not measured**" in (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert PAGE.name == "gpu.md"
