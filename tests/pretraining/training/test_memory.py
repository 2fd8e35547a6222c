"""Memory: failed allocations are recognised, and the micro-batch that fits is found before one fails."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from pretraining.training import memory
from pretraining.training.memory import free_bytes, is_out_of_memory, largest_micro_batch, saved_bytes


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))


def step(model: nn.Module) -> Callable[[int], None]:
    def compute(rows: int) -> None:
        model(torch.ones(rows, 64)).square().mean().backward()
        model.zero_grad()

    return compute


def test_failed_allocations_are_recognised_and_nothing_else(subtests: pytest.Subtests) -> None:
    for error, is_memory in (
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 3 bytes"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ):
        with subtests.test(error=error):
            assert is_out_of_memory(error) == is_memory
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value)


def test_what_is_saved_grows_by_the_row_and_leaves_weights_out(model: nn.Module) -> None:
    compute = step(model)
    one, two, nine = (saved_bytes(lambda rows=rows: compute(rows), model) for rows in (1, 2, 9))
    assert nine - two == 7 * (two - one)
    # Inputs of both layers and of the activation: 64 + 256 + 256 numbers, and the output.
    assert two - one == 4 * (64 + 256 + 256 + 64)
    assert one < 4 * sum(p.numel() for p in model.parameters())


def test_the_largest_half_that_fits_is_found_by_counting(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    row, fixed = 4 * (64 + 256 + 256 + 64), 10_000
    for rows, batch_size, found in ((40, 32, 32), (20, 32, 16), (1.5, 32, 1), (0.5, 32, 0), (20, 24, 12), (3, 1, 1)):
        with subtests.test(rows=rows, batch_size=batch_size), monkeypatch.context() as context:
            context.setattr(memory, "free_bytes", lambda rows=rows: (fixed + rows * row) / memory.ROOM)
            tried: list[int] = []

            def compute(size: int, tried: list[int] = tried) -> None:
                tried.append(size)
                step(model)(size)

            assert largest_micro_batch(compute, batch_size, model=model, fixed_bytes=fixed) == found
            assert max(tried) <= 2  # nothing large is tried where a failure would end the process


def test_not_even_one_row_is_none(model: nn.Module) -> None:
    def compute(_: int) -> None:
        raise MemoryError

    assert largest_micro_batch(compute, 8, model=model, fixed_bytes=0) == 0


def test_a_mistake_is_not_taken_for_a_lack_of_memory(model: nn.Module) -> None:
    def compute(_: int) -> None:
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        largest_micro_batch(compute, 8, model=model, fixed_bytes=0)


def test_free_memory_is_that_of_the_machine_or_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    for name, files, expected in (
        ("no group", {}, 4_096_000),
        ("no limit", {"memory.max": "max\n", "memory.current": "5\n"}, 4_096_000),
        (
            "tight",
            {"memory.max": "3000000\n", "memory.current": "1000000\n", "memory.stat": "anon 1\ninactive_file 500\n"},
            2_000_500,
        ),
        ("wide", {"memory.max": "99000000\n", "memory.current": "1000000\n"}, 4_096_000),
    ):
        with subtests.test(group=name), monkeypatch.context() as context:
            folder = tmp_path / name
            folder.mkdir()
            for file, text in files.items():
                (folder / file).write_text(text)
            context.setattr(memory, "CGROUP", folder)
            assert free_bytes() == expected
