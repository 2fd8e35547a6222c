"""Sentence embedders as models of the comparison."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from corpora.foundation.files import fingerprint
from downstream.embed import Embedder
from downstream.embeddings.similarity import evaluate_split
from downstream.finetuning.result import read_result
from downstream.task import get_task
from eval import run_all
from eval.cells.files import cell_path
from eval.cells.measurements import COST, EXTRAS
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.embedder import SentenceEmbedder

Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")


@pytest.mark.slow
def test_an_embedder_has_cells_on_similarity_tasks_alone_and_is_scored_by_its_cosines(
    tiny_encoder: Path, out: Path, fails: Fails
) -> None:
    model = SentenceEmbedder(name="tiny-embedder", encoder=str(tiny_encoder))
    cells = plan_cells([model], [NSMC, STS], 3)
    assert [cell.key for cell in cells] == [(STS.name, "tiny-embedder", 0)]
    runner = CellRunner(cells, root=NOWHERE, out=out, extras=EXTRAS)
    runner.run()
    assert runner.failed == []
    result = read_result(cell_path(out, *cells[0].key))
    embedder = Embedder.load(tiny_encoder)
    split = STS.read_split(STS.eval_split, NOWHERE)
    assert result.predictions == pytest.approx(evaluate_split(STS, split, embedder).predictions, abs=1e-5)
    assert result.recipe["embedder_sha256"] == embedder.sha256
    assert result.recipe_sha256 == fingerprint(result.recipe)
    assert COST.read(COST.path(out, *cells[0].key)).cost.num_parameters == embedder.num_parameters
    with pytest.MonkeyPatch.context() as patch, fails(UsageError, "--models", "none of these models does any"):
        patch.setattr(run_all, "choose_models", lambda *_: [model])
        run_all.main(["--tasks", "nsmc-sample", "--models", "x", "--out", str(out)])
