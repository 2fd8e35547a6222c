"""What a run asks of its machine."""

import contextlib
import itertools
import os
import platform
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
import transformers

import corpora.foundation.machine
from corpora.foundation.machine import (
    cpu_name,
    keep_freed_memory,
    matmul_flops_per_s,
    no_file_bars,
    num_threads,
    training_precision,
    versions,
)

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Measure with smaller matrices, and return their side."""
    monkeypatch.setattr(corpora.foundation.machine, "MATMUL_SIDE", 256)
    return 256


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("small")
def test_the_rate_of_the_machine_is_plausible(dtype: torch.dtype) -> None:
    """From a slow core that emulates to the largest accelerator."""
    assert 1e7 < matmul_flops_per_s(CPU, dtype, rounds=3) < 1e17


def test_the_rate_is_that_of_the_fastest_product(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    durations = [0.1, 0.2, 4.0, 2.0, 8.0]  # the first two warm up
    ticks = itertools.chain.from_iterable((100.0 * k, 100.0 * k + d) for k, d in enumerate(durations))
    monkeypatch.setattr(corpora.foundation.machine, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert matmul_flops_per_s(CPU, torch.float32, rounds=3) == pytest.approx(2 * small**3 / 2.0)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 4.0), (4.2, 4.0), (4.4, 2.0), (7.0, 1.0)])
def test_no_product_is_begun_after_the_time(
    small: int, monkeypatch: pytest.MonkeyPatch, seconds: float, expected: float
) -> None:
    durations = [0.1, 0.2, 4.0, 2.0, 1.0]
    ticks = itertools.chain.from_iterable((100.0 * k, 100.0 * k + d) for k, d in enumerate(durations))
    monkeypatch.setattr(corpora.foundation.machine, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    rate = matmul_flops_per_s(CPU, torch.float32, rounds=3, seconds=seconds)
    assert rate == pytest.approx(2 * small**3 / expected)


def test_freed_memory_is_kept_where_the_c_library_is_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    is_glibc = sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc"
    assert keep_freed_memory() == is_glibc
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "bf16"),
        ({"avx512_bf16": False, "avx2": True}, "fp32"),
        ({}, "fp32"),
    ],
)
def test_a_processor_computes_in_bf16_only_if_it_is_fast(
    capabilities: dict[str, bool], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert training_precision() == precision


@pytest.mark.parametrize(("is_native", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_computes_in_bf16_only_if_it_does_not_emulate_it(
    is_native: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda *, including_emulation: is_native or including_emulation
    )
    assert training_precision() == precision


def test_versions_are_those_that_are_installed() -> None:
    found = versions("torch", "numpy")
    assert found == {
        "python": platform.python_version(),
        "pressbert": metadata.version("pressbert"),
        "torch": metadata.version("torch"),
        "numpy": metadata.version("numpy"),
    }
    assert versions().keys() >= {"python", "pressbert", "torch", "transformers", "tokenizers"}


def test_the_processor_has_a_name() -> None:
    assert cpu_name().strip()


@pytest.mark.parametrize("is_on", [True, False])
def test_bars_of_files_are_off_inside_and_as_before_outside(is_on: bool) -> None:
    library = transformers.utils.logging
    before = library.is_progress_bar_enabled()
    switches = {True: library.enable_progress_bar, False: library.disable_progress_bar}
    try:
        switches[is_on]()
        with contextlib.suppress(ZeroDivisionError), no_file_bars():
            assert not library.is_progress_bar_enabled()
            raise ZeroDivisionError
        assert library.is_progress_bar_enabled() == is_on
    finally:
        switches[before]()


@pytest.mark.parametrize(("value", "expected"), [("3", 3), ("2,1", 2), ("0", None), ("many", None), ("", None)])
def test_threads_are_those_that_openmp_is_given_else_one_for_each_processor(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert num_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    assert num_threads() == (expected or allowed)
