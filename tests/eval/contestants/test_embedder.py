"""Sentence embedders as models of the comparison."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from corpora.foundation.files import fingerprint
from downstream.embed import Embedder
from downstream.embeddings.similarity import evaluate_split
from downstream.families.retrieval import RetrievalExample
from downstream.finetune import TaskData, finetune
from downstream.finetuning.result import read_result
from downstream.task import Split, get_task
from eval import run_all
from eval.cells.files import cell_path
from eval.cells.measurements import COST, EXTRAS
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.embedder import SentenceEmbedder, similarities
from eval.contestants.encoder import Encoder
from eval.contestants.majority import Majority
from eval.contestants.tfidf import Tfidf

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


def test_retrieval_is_for_models_with_vectors_and_for_no_others(tiny_encoder: Path, tmp_path: Path) -> None:
    task = get_task("parakqc")
    texts = ("비가 오나요?", "비가 오네요?", "눈을 치웁니까?", "눈을 치웠습니까?")
    examples = [RetrievalExample(str(k), text, None, str(k // 2)) for k, text in enumerate(texts)]
    tiny = SentenceEmbedder(name="tiny", encoder=str(tiny_encoder))
    models = [Majority(name="m"), Tfidf(name="t"), Encoder(name="e"), tiny]
    assert [cell.model.name for cell in plan_cells(models, [task], 3)] == ["t", "tiny"]
    assert Tfidf(name="t").fit(task, examples).predict(examples) == [1.0, 1.0, 1.0, 1.0]
    found = similarities(Embedder.load(tiny_encoder), task, examples)
    assert all(rank in {1.0, 2.0, 3.0} for rank in found)
    data = TaskData(Split(tuple(examples), "0"), Split(tuple(examples), "0"))
    with pytest.raises(UsageError, match="cannot be fine-tuned on retrieval"):
        finetune(task, tiny_encoder, out=tmp_path / "out", data=data)


def test_speed_and_robustness_of_retrieval_are_measured(tiny_encoder: Path, tmp_path: Path, out: Path) -> None:
    texts = ("비가 오나요", "눈을 치웁니까", "버스가 늦습니까", "불을 꺼 주세요", "내일 일정을 알려 줘")
    lines = (f"0\t{k}\t{text} {n}번째로\n" for k, text in enumerate(texts) for n in range(10))
    (tmp_path / "data" / "parakqc").mkdir(parents=True)
    (tmp_path / "data" / "parakqc" / "paraKQC_v1.txt").write_text("".join(lines), encoding="utf-8")
    models = [Tfidf(name="t"), SentenceEmbedder(name="tiny", encoder=str(tiny_encoder))]
    cells = plan_cells(models, [replace(get_task("parakqc"), num_examples={"test": 50})], 1)
    runner = CellRunner(cells, root=tmp_path / "data", out=out, extras=EXTRAS)
    runner.run()
    assert runner.failed == []
    for cell in cells:
        assert COST.read(COST.path(out, *cell.key)).cost.num_single == 50


def test_a_prompt_is_written_before_every_text_and_is_part_of_the_recipe(tiny_encoder: Path) -> None:
    embedder, pairs = Embedder.load(tiny_encoder), STS.read_split(STS.eval_split, NOWHERE).examples[:3]
    prompted = [replace(pair, text=f"query: {pair.text}", pair=f"query: {pair.pair}") for pair in pairs]
    found = similarities(embedder, STS, pairs, prompt="query: ")
    assert found == pytest.approx(similarities(embedder, STS, prompted), abs=1e-6)
    assert found != pytest.approx(similarities(embedder, STS, pairs), abs=1e-3)
    plain, model = (SentenceEmbedder(name="e", encoder=str(tiny_encoder), prompt=p) for p in ("", "query: "))
    assert "prompt" not in plain.settings(STS)
    assert SentenceEmbedder.from_recipe("e", model.source, model.settings(STS)) == model
