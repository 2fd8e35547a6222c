"""Muon: orthogonal steps, of the length that AdamW's have, as torch's own makes them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from pretraining.training.optimizers import COEFFICIENTS, ITERATIONS, Muon, is_hidden_matrix, orthogonalise

SHAPES = [(32, 32), (64, 16), (16, 64)]


def matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_singular_vectors_stay_and_singular_values_come_near_one(subtests: pytest.Subtests) -> None:
    for shape in SHAPES:
        with subtests.test(shape=shape):
            given = matrix(*shape)
            u, values, v = torch.linalg.svd(given, full_matrices=False)
            made = u.mT @ orthogonalise(given[None])[0] @ v.mT
            assert torch.allclose(made - torch.diag(made.diagonal()), torch.zeros_like(made), atol=1e-3)
            # One of a square matrix may be too small to be lifted in five steps.
            lifted = made.diagonal()[values / torch.linalg.norm(values) > 0.01]
            assert len(lifted) >= min(shape) - 2
            assert lifted.min() > 0.6
            assert lifted.max() < 1.3


def test_the_polynomial_is_the_one_of_the_source() -> None:
    a, b, c = COEFFICIENTS
    value = matrix(1, 1).abs().double()
    expected = value / value
    for _ in range(ITERATIONS):
        expected = a * expected + b * expected**3 + c * expected**5
    assert torch.allclose(orthogonalise(value[None])[0], expected)


def test_matrices_do_not_depend_on_those_computed_with_them() -> None:
    some = torch.stack([matrix(16, 32, seed) for seed in range(3)])
    alone = torch.cat([orthogonalise(one[None]) for one in some])
    assert torch.allclose(orthogonalise(some), alone, atol=1e-5)


def test_a_matrix_of_zeros_stays_one() -> None:
    assert not orthogonalise(torch.zeros(1, 8, 16)).any()


def test_steps_are_those_of_torch(subtests: pytest.Subtests) -> None:
    for weight_decay in [0.0, 0.1]:
        with subtests.test(weight_decay=weight_decay):
            ours, theirs = ([Parameter(matrix(*shape)) for shape in SHAPES] for _ in range(2))
            own = Muon(ours, lr=0.02, weight_decay=weight_decay, dtype=torch.bfloat16)
            reference: Any = torch.optim.Muon(
                theirs, lr=0.02, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
            )
            for step in range(4):
                for k, shape in enumerate(SHAPES):
                    ours[k].grad = matrix(*shape, seed=10 * step + k)
                    theirs[k].grad = matrix(*shape, seed=10 * step + k)
                own.step()
                reference.step()
            for a, b, shape in zip(ours, theirs, SHAPES, strict=True):
                moved = b.detach() - matrix(*shape)
                # In bf16 the order of sums is seen in the third digit.
                assert (a - b).norm() < 0.02 * moved.norm()


def test_a_step_is_as_long_as_one_of_adamw() -> None:
    parameter = Parameter(torch.zeros(64, 256))
    parameter.grad = matrix(64, 256)
    Muon([parameter], lr=1e-3, weight_decay=0.0).step()
    assert parameter.detach().square().mean().sqrt().item() == pytest.approx(0.2e-3, rel=0.15)


def test_what_has_no_gradient_stays() -> None:
    moved, left = Parameter(torch.ones(8, 8)), Parameter(torch.ones(8, 8))
    moved.grad = matrix(8, 8)
    Muon([moved, left], lr=0.1).step()
    assert not torch.equal(moved, torch.ones(8, 8))
    assert torch.equal(left, torch.ones(8, 8))


def test_only_matrices_between_hidden_layers_are_taken(subtests: pytest.Subtests) -> None:
    for name, shape, is_one in [
        ("network.bert.encoder.layer.0.attention.self.query.weight", (16, 16), True),
        ("network.bert.embeddings.word_embeddings.weight", (100, 16), False),
        ("network.bert.encoder.layer.0.output.LayerNorm.weight", (16,), False),
        ("network.cls.seq_relationship.weight", (2, 16), False),
    ]:
        with subtests.test(name=name):
            assert is_hidden_matrix(name, torch.zeros(shape)) is is_one
