"""Few-shot tasks: their names, which examples are drawn, and what reaches training and baselines."""

from collections import Counter
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from downstream.finetuning.batches import draw_few
from downstream.task import TextExample, all_tasks, few_shot_name, get_task, read_task

NOWHERE = Path("/nonexistent")


def test_a_few_shot_task_is_made_when_it_is_asked_for_and_differs_in_its_training_alone() -> None:
    tasks, full, few = all_tasks(), get_task("nsmc"), get_task("nsmc_16shot")
    assert (few.name, few.few_shot, few.title) == ("nsmc-16shot", 16, "NSMC 16개 학습")
    assert (few.files, few.metrics, few.eval_split, few.official_name) == (
        full.files,
        full.metrics,
        full.eval_split,
        "nsmc-16shot",
    )
    assert few.finetune.epochs * 16 / few.finetune.batch_size == 200
    assert get_task("nsmc-1000000shot").finetune.epochs == full.finetune.epochs
    sample = get_task(few_shot_name(get_task("nsmc-sample"), 16))
    assert (sample.name, sample.is_sample, sample.few_shot) == ("nsmc-16shot-sample", True, 16)
    assert read_task(sample, NOWHERE).sha256 == read_task(get_task("nsmc-sample"), NOWHERE).sha256
    assert get_task("klue-nli-devsplit-64shot").base == "klue-nli"
    assert "nsmc-16shot" in tasks
    assert tasks.get("nsmc-16shot") == few
    assert [name for name in tasks if name.endswith("shot")] == []
    for name in ("nsmc-shot", "nope-16shot", "parakqc-16shot", "korsts-16shot-sample", "nsmc-sample-16shot"):
        assert name not in tasks
        assert tasks.get(name) is None
        with pytest.raises(UsageError, match="unknown task"):
            get_task(name)
    with pytest.raises(UsageError, match="0 labelled examples"):
        get_task("nsmc-0shot")


def test_classes_are_drawn_equally_often_by_the_seed_and_smaller_numbers_are_part_of_larger_ones() -> None:
    train = read_task(get_task("klue-nli-sample"), NOWHERE).train.examples
    drawn = {(n, seed): draw_few(get_task(f"klue-nli-{n}shot"), train, seed) for n in (3, 16, 64) for seed in (0, 1)}
    for (number, seed), examples in drawn.items():
        counts = Counter(example.label for example in examples)
        assert len(examples) == number
        assert len(counts) == 3
        assert max(counts.values()) - min(counts.values()) <= 1, (number, seed)
        assert [train.index(example) for example in examples] == sorted(train.index(e) for e in examples)
    assert set(drawn[3, 0]) <= set(drawn[16, 0]) <= set(drawn[64, 0])
    assert set(drawn[16, 0]) != set(drawn[16, 1])
    reversed_order = draw_few(get_task("klue-nli-16shot"), train[::-1], 0)
    assert set(reversed_order) == set(drawn[16, 0])


def test_rare_classes_give_all_they_have_and_scores_are_drawn_whatever_they_are() -> None:
    train = [TextExample(str(k), f"글 {k}", None, "positive" if k < 2 else "negative") for k in range(40)]
    counts = Counter(example.label for example in draw_few(get_task("nsmc-16shot"), train, 0))
    assert counts == {"positive": 2, "negative": 14}
    assert draw_few(get_task("nsmc-64shot"), train, 0) == train
    assert draw_few(get_task("nsmc"), train, 0) == train
    scored = [TextExample(str(k), f"글 {k}", "글", float(k % 5)) for k in range(40)]
    assert len(draw_few(get_task("klue-sts-16shot"), scored, 0)) == 16
