"""Systems that choose sentences, as models of the comparison."""

from pathlib import Path

import pytest

from corpora.foundation.files import write_json
from downstream.task import get_task
from eval.board.disagreement import find_disagreements
from eval.board.rows import build_table
from eval.cells.files import find_cells
from eval.cells.manifest import fold_manifest, read_experiments
from eval.cells.measurements import COST, EXTRAS
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.contestant import load_leaderboard

NOWHERE = Path("/nonexistent")
KNOWN = load_leaderboard().models
SUMMARIES = get_task("news-summary-sample")


@pytest.mark.slow
def test_summaries_are_for_summarizers_alone_and_have_no_noise(out: Path) -> None:
    names = ["lead-3", "oracle", "pressbert-summarizer"]
    cells = plan_cells([KNOWN[name] for name in ("majority", *names)], [SUMMARIES], 2)
    assert [cell.model.name for cell in cells] == names
    assert plan_cells([KNOWN["lead-3"]], [get_task("nsmc-sample")], 1) == []
    runner = CellRunner(cells, root=NOWHERE, out=out, extras=EXTRAS)
    runner.run()
    assert runner.failed == []
    assert not (out / "noise").exists()
    assert all(COST.path(out, *cell.key).is_file() for cell in cells)
    results, _ = find_cells(out)
    table = build_table(results, [])
    rows = {row.model: row for row in table.rows if row.metric == SUMMARIES.metrics[0].key}
    assert rows["oracle"].value == 1.0
    assert rows["pressbert-summarizer"].value > rows["lead-3"].value
    (found,) = find_disagreements(table, NOWHERE)
    assert found.num_disputed > 10
    example = found.examples[0]
    assert {answer.model: answer.quality for answer in example.answers}["oracle"] == 1.0
    # A run that is repeated from its manifest has the same systems.
    write_json(out / "leaderboard.json", {"manifest": fold_manifest(results)})
    experiments = read_experiments(out)
    assert [experiment.contestant for experiment in experiments] == [KNOWN[e.model] for e in experiments]
