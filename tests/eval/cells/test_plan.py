"""Plans of cells, and how they are shared."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from corpora.foundation.errors import UsageError
from downstream.task import get_task
from eval.cells.plan import parse_share, plan_cells, share_of
from eval.contestants.contestant import load_leaderboard

Fails = Callable[..., AbstractContextManager[None]]

KNOWN = load_leaderboard().models
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")


def test_a_plan_has_every_seed_of_trained_models_and_one_of_others() -> None:
    plan = plan_cells([KNOWN["majority"], KNOWN["pressbert-scratch"]], [NSMC, STS], 2)
    assert [cell.key for cell in plan] == [
        (task, model, seed)
        for task in ("nsmc-sample", "klue-sts-sample")
        for model, seed in (("majority", 0), ("pressbert-scratch", 0), ("pressbert-scratch", 1))
    ]


def test_shares_are_the_whole_plan_and_disjoint() -> None:
    plan = plan_cells(list(KNOWN.values())[:3], [NSMC, STS], 3)
    for count in (1, 2, 3, 7, 50):
        shares = [share_of(plan, index, count) for index in range(1, count + 1)]
        keys = [cell.key for share in shares for cell in share]
        assert sorted(keys) == sorted(cell.key for cell in plan), count
        assert len(set(keys)) == len(keys), count
        assert max(map(len, shares)) - min(map(len, shares)) <= 1, count


def test_a_share_is_read_or_refused_in_one_line(fails: Fails) -> None:
    assert parse_share("2/3") == (2, 3)
    for text in ("0/2", "3/2", "half", "1", "/2", "1/", "-1/2"):
        with fails(UsageError, "--shard: ", f"'{text}' is not a share", "1/4"):
            parse_share(text)
