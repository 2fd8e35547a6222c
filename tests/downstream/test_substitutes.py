"""Substitutes for official files: parts without shared texts, the same on every machine, under their own names."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.foundation.errors import DataError
from corpora.foundation.files import SAMPLE_ROOT, fingerprint, sha256
from downstream.families.classification import Regression
from downstream.families.dependency import Dependency
from downstream.families.tagging import Tagging
from downstream.finetune import read_task
from downstream.metrics import bootstrap_ci95
from downstream.substitutes import Division
from downstream.task import Task, TextExample, all_tasks, get_task

SUBSTITUTES = [task for task in all_tasks().values() if task.base and not task.is_sample]
DIVIDED = [task for task in SUBSTITUTES if task.division is not None and task.derive is None]
HALVES = Division("dev", {"train": 0, "dev": 0}, eval_share=0.5)


def name(task: object) -> str | None:
    return task.name if isinstance(task, Task) else None


def pairs(*texts: tuple[str, str]) -> list[TextExample]:
    return [TextExample(f"{one}|{two}", one, two, 0.0) for one, two in texts]


# --- the rule -------------------------------------------------------------------------------------------------------


def test_the_part_of_a_text_follows_from_its_sha256() -> None:
    r"""`printf 'pressbert division 1\n충남' | sha256sum` begins with 01698a1f, that of 세종 with 36784023."""
    fifth = ["충남", "제주", "전북", "광주", "강원"]  # 0x00… to 0x33…
    half = [*fifth, "세종", "대전", "서울", "경기", "충북"]  # to 0x7f…
    words = [*half, "전남", "대구", "부산", "경북", "울산", "인천", "경남"]
    examples = [TextExample(word, word, None, "") for word in words]
    for share, held_out in ((0.0, []), (0.2, fifth), (0.5, half), (1.0, words)):
        parts = Division("dev", {}, eval_share=share).parts(examples)
        assert [example.id for example in parts["dev"]] == held_out
        assert [example for example in examples if example not in parts["dev"]] == parts["train"]


def test_examples_stay_together_through_third_ones() -> None:
    chains = [pairs(*((f"{chain}.{k}", f"{chain}.{k + 1}") for k in range(4))) for chain in range(40)]
    parts = HALVES.parts([example for links in zip(*chains, strict=True) for example in links])
    sides = [{part for part, members in parts.items() if set(chain) & set(members)} for chain in chains]
    assert all(len(side) == 1 for side in sides)
    assert {"train", "dev"} == set().union(*sides)


def test_texts_that_differ_in_blanks_alone_stay_together() -> None:
    for k in range(20):
        examples = pairs((f"그는 {k}번 왔다.", f"{k}a"), (f"그는{k}번  왔다. ", f"{k}b"))
        assert [] in HALVES.parts(examples).values()


TEXTS = st.integers(0, 30).map(str)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30, unique=True), st.randoms(use_true_random=False))
def test_parts_are_disjoint_and_whole_and_no_matter_of_order(texts: list[tuple[str, str]], random: Any) -> None:
    examples = pairs(*texts)
    parts = HALVES.parts(examples)
    assert sorted(e.id for members in parts.values() for e in members) == sorted(e.id for e in examples)
    assert all(members == [e for e in examples if e in members] for members in parts.values())
    train, dev = ({text for e in parts[part] for text in (e.text, e.pair)} for part in ("train", "dev"))
    assert not train & dev
    shuffled = random.sample(examples, len(examples))
    assert {part: set(members) for part, members in HALVES.parts(shuffled).items()} == {
        part: set(members) for part, members in parts.items()
    }


def test_about_the_share_that_is_asked_for_is_held_out() -> None:
    examples = [TextExample(str(k), str(k), None, "") for k in range(4_000)]
    held_out = len(Division("dev", {}).parts(examples)["dev"])
    assert abs(held_out - 800) < 4 * np.sqrt(4_000 * 0.2 * 0.8)


# --- the tasks ------------------------------------------------------------------------------------------------------


def test_every_task_with_unavailable_files_has_a_substitute() -> None:
    assert {task.name for task in SUBSTITUTES} == {
        "korquad-devsplit",
        "korquad-qnli-devsplit",
        "klue-nli-devsplit",
        "klue-sts-devsplit",
        "klue-ner-devsplit",
        "kornli-devsplit",
        "korsts-dev",
        "hate-trainsplit",
        "hate-bias-trainsplit",
        "klue-dp-devsplit",
        "paws-x-devsplit",
        *(f"kobest-{name}-dev" for name in ("boolq", "copa", "hellaswag", "sentineg", "wic")),
    }


def test_a_substitute_passes_for_no_official_task(subtests: pytest.Subtests) -> None:
    for task in SUBSTITUTES:
        with subtests.test(task=task.name):
            official = get_task(task.base)
            assert official.base == ""
            assert task.official_name == official.name != task.name
            assert task.name.startswith(f"{official.name}-")
            assert task.title.startswith(f"{official.title} (")
            assert "분할" in task.title or "평가)" in task.title
            assert task.source.startswith(official.source)
            assert task.source != official.source
            assert (task.metrics, task.family, task.licence) == (official.metrics, official.family, official.licence)


def test_a_figure_on_the_board_has_one_substitute_at_most() -> None:
    """Substitutes stand in the official task's column, one row a model: two would hide each other."""
    assert max(Counter(task.base for task in SUBSTITUTES).values()) == 1


def test_a_substitute_is_read_from_official_files_and_never_from_the_sample(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for task in SUBSTITUTES:
        with subtests.test(task=task.name):
            for split, file in task.files.items():
                (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / file.path).write_text("")
                assert task.path(split, tmp_path) == tmp_path / file.path
                assert file in get_task(task.base).files.values()
                assert SAMPLE_ROOT not in task.path(split, tmp_path).parents


def test_a_divided_file_of_another_size_is_refused(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    rows = "".join(f"평 {k}\tFalse\tnone\thate\n" for k in range(20))
    path = write("hate/train.tsv", f"comments\tcontain_gender_bias\tbias\thate\n{rows}")
    with pytest.raises(DataError, match=f"{path}: [0-9]+ examples where hate-trainsplit dev has 1,530"):
        read_task(get_task("hate-trainsplit"), tmp_path)


def test_the_digest_of_a_part_is_of_the_file_and_of_what_is_in_it(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    rows = "".join(f"평 {k}\tFalse\tnone\thate\n" for k in range(20))
    path = write("hate/train.tsv", f"comments\tcontain_gender_bias\tbias\thate\n{rows}")
    official = get_task("hate")
    parts = HALVES.parts(official.read(path))
    counts = {part: len(members) for part, members in parts.items()}
    ours = replace(HALVES, split="train", num_examples=counts).substitute_task(official)
    for part, members in parts.items():
        split = ours.read_split(part, tmp_path)
        assert list(split.examples) == members
        assert split.sha256 == fingerprint({"file": sha256(path), "ids": [example.id for example in members]})


# --- the official files ---------------------------------------------------------------------------------------------


def keys_of(task: Task, examples: Sequence[Any]) -> set[str]:
    if task.official_name == "korquad":
        return {key for example in examples for key in (example.title, example.context)}
    return {text for e in examples for text in (e.text, e.pair) if text is not None}


@pytest.mark.real_data
def test_parts_of_an_official_file_share_no_text_and_are_all_of_it(real_data: Path, subtests: pytest.Subtests) -> None:
    for task in DIVIDED:
        with subtests.test(task=task.name):
            assert task.division is not None
            data = read_task(task, real_data)
            assert not keys_of(task, data.train.examples) & keys_of(task, data.eval.examples)
            whole = task.read(task.path("dev", real_data))
            assert {e.id for e in data.train.examples} | {e.id for e in data.eval.examples} == {e.id for e in whole}
            assert (
                len(whole) == sum(task.num_examples.values()) == get_task(task.base).num_examples[task.division.split]
            )
            assert abs(task.num_examples["dev"] / len(whole) - task.division.eval_share) < 0.06


@pytest.mark.real_data
def test_what_lies_in_which_part_is_pinned(real_data: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str]] = [
        ("korquad-devsplit", "d1c01a72", "67521299"),
        ("klue-nli-devsplit", "0ba4031b", "00b41d54"),
        ("klue-sts-devsplit", "c15348d9", "7f686d8d"),
        ("klue-ner-devsplit", "56e0e110", "1f20cd21"),
        ("kornli-devsplit", "c040c745", "25a5e0b8"),
        ("hate-trainsplit", "4716c3fa", "fe26ab88"),
        ("hate-bias-trainsplit", "4716c3fa", "fe26ab88"),
        ("klue-tc-pool", "0155bc5d", "fb56cf6c"),
        ("klue-dp-devsplit", "f752b4f7", "0807bddd"),
        ("paws-x-devsplit", "e73f571c", "e5176d7e"),
    ]
    for task, train, dev in cases:
        with subtests.test(task=task):
            digests = [get_task(task).read_split(part, real_data).sha256[:8] for part in ("train", "dev")]
            assert digests == [train, dev]


def shuffled(task: Task, golds: Sequence[Any], seed: int = 0) -> list[Any]:
    """Deal the golds out anew; tags go to other characters, heads to other eojeols, as sentences differ in length."""
    generator = np.random.default_rng(seed)
    if not isinstance(task.family, Tagging | Dependency):
        return [golds[k] for k in generator.permutation(len(golds))]
    tags = iter(generator.permutation([tag for gold in golds for tag in gold.split()]))
    return [" ".join(next(tags) for _ in gold.split()) for gold in golds]


@pytest.mark.slow
@pytest.mark.real_data
def test_golds_score_one_and_shuffled_golds_score_chance(real_data: Path, subtests: pytest.Subtests) -> None:
    for task in SUBSTITUTES:
        with subtests.test(task=task.name):
            golds = read_task(task, real_data).eval.golds
            right, dealt = (
                [gold[0] if isinstance(gold, tuple) else gold for gold in given]
                for given in (golds, shuffled(task, golds))
            )
            assert [metric(right, golds) for metric in task.metrics] == pytest.approx([1.0] * len(task.metrics))
            metric = task.metrics[0]
            low, high = bootstrap_ci95(metric, [metric.columns(dealt, golds)]) or (1.0, 0.0)
            if task.chance:
                # The mean of several deals: one in twenty lies outside its own interval.
                deals = [metric(shuffled(task, golds, seed), golds) for seed in range(20)]
                assert np.mean(deals) == pytest.approx(task.chance, abs=0.02)
            elif isinstance(task.family, Regression):
                assert low < task.chance < high
            else:  # now and then a wrong answer happens to be right
                assert metric(dealt, golds) < 0.03
            assert high - low < 0.3
