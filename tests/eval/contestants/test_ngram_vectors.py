"""A kind of model that is one file: the registry finds it, and nothing else names it."""

from pathlib import Path

from downstream.task import TextExample, get_task
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.contestant import all_kinds, load_leaderboard, read_entry
from eval.contestants.ngram_vectors import NgramVectors

ROOT = Path(__file__).resolve().parents[3]
NSMC = get_task("nsmc-sample")
MODEL = NgramVectors(name="vectors")


def test_it_is_found_by_the_registry_and_named_nowhere_else() -> None:
    assert all_kinds()["ngram_vectors"] is NgramVectors
    assert read_entry("vectors", {"kind": "ngram_vectors"}, "here") == MODEL
    assert not any(isinstance(model, NgramVectors) for model in load_leaderboard().models.values())
    sources = [*ROOT.glob("eval/**/*.py"), *ROOT.glob("eval/*.toml")]
    assert [path.name for path in sources if "ngram_vectors" in path.read_text(encoding="utf-8")] == [
        "ngram_vectors.py"
    ]


def test_it_has_cells_where_a_single_text_has_a_label() -> None:
    tasks = [get_task(name) for name in ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-ner", "hate")]
    assert [cell.task.name for cell in plan_cells([MODEL], tasks, 3)] == ["nsmc", "hate"]


def test_it_learns_labels_from_characters_and_always_predicts_the_same() -> None:
    words = {"positive": ("좋다", "훌륭하다", "재밌다"), "negative": ("나쁘다", "지루하다", "별로다")}
    things = ("영화", "연기", "음악", "각본", "결말")
    examples = [
        TextExample("", f"{thing} 정말 {word}", None, label)
        for label, choices in words.items()
        for thing in things
        for word in choices
    ]
    fitted = [MODEL.fit(NSMC, examples[::2] * 60) for _ in range(2)]
    golds = [example.label for example in examples]
    assert [model.predict(examples) for model in fitted] == [golds, golds]
    assert fitted[0].predict([TextExample("", "", None, "")])[0] in words
    assert fitted[0].num_parameters == (1 << 16) * 16 + 16 * 2


def test_its_cell_is_run_measured_and_finished_like_any_other(out: Path) -> None:
    for num_skipped in (0, 1):
        runner = CellRunner(plan_cells([MODEL], [NSMC], 3), root=Path("/nonexistent"), out=out)
        assert len(runner.unfinished()) == 1 - num_skipped
        runner.run()
        assert runner.failed == []
