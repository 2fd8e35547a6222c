"""The registry of objectives, and the number of predictions."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

from corpora.foundation.errors import RecipeError
from pretraining.objective import ObjectiveConfig, all_objectives, get_objective, token_share

Fails = Callable[..., AbstractContextManager[None]]


def test_an_objective_is_found_by_its_name_and_names_its_paper(subtests: pytest.Subtests) -> None:
    for name in sorted(all_objectives()):
        with subtests.test(name=name):
            objective = get_objective(name, "recipe")
            assert objective.name == name
            assert objective.paper
            assert issubclass(objective.settings, ObjectiveConfig)
            assert objective.settings() == objective.settings()
            assert inspect.getdoc(inspect.getmodule(objective))
            assert name in all_objectives()


def test_an_unknown_objective_names_the_nearest(fails: Fails) -> None:
    with fails(RecipeError, "recipe", "'dynamic_mln'", "'dynamic_mlm'"):
        get_objective("dynamic_mln", "recipe")


def test_predictions_are_rounded_so_that_the_share_is_kept() -> None:
    num_tokens = np.array([10, 10, 10, 100, 0])
    draws = np.array([0.0, 0.49, 0.51, 0.999, 0.999])
    assert token_share(0.15, num_tokens, draws).tolist() == [1, 1, 2, 15, 0]
