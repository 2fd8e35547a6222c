"""Recipes of sentence embeddings: what they accept, which rows their data become, and how rows become batches."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.build import main as build_corpus
from corpora.foundation.errors import DataError, DataUnavailableError, RecipeError
from downstream.embeddings.recipe import (
    NLI_LABELS,
    STAGES,
    DropoutPairs,
    EmbedRecipe,
    HeadlineBody,
    HeadlineDay,
    NliRanking,
    NliSoftmax,
    Stage,
    StsCosine,
    TeacherVectors,
    read_embed_recipe,
)
from downstream.embeddings.rows import Rows, Source, is_held_out, make_batches, read_rows, text_key
from downstream.task import get_task

Fails = Callable[..., AbstractContextManager[None]]
NOWHERE = Path("/nonexistent")


def stage(kind: str, *data: str, **settings: Any) -> Stage:
    return STAGES[kind](kind=kind, data=data, **settings)


def rows_of(stage: Stage, root: Path = NOWHERE) -> list[tuple[Any, ...]]:
    return list(zip(*read_rows(stage, root, "stage 1").columns.values(), strict=True))


def article_file(write: Callable[[str, str], Path], *articles: tuple[str, str]) -> str:
    lines = [json.dumps({"title": title, "text": text}, ensure_ascii=False) for title, text in articles]
    return str(write("articles.jsonl", "\n".join(lines)))


# --- recipes --------------------------------------------------------------------------------------------------------

KPFSBERT = """
max_length = 512
[[stages]]
kind = "nli_softmax"
data = ["kornli:snli"]
[[stages]]
kind = "sts_cosine"
data = ["korsts"]
"""


def test_the_defaults_are_those_of_kpfsbert(write: Callable[[str, str], Path]) -> None:
    recipe = read_embed_recipe(write("recipe.toml", KPFSBERT))
    nli, sts = recipe.stages
    assert isinstance(nli, NliSoftmax)
    assert isinstance(sts, StsCosine)
    assert (nli.epochs, nli.batch_size, nli.peak_lr, nli.warmup_ratio) == (1, 16, 2e-5, 0.1)
    assert (sts.epochs, sts.batch_size, sts.peak_lr, sts.warmup_ratio) == (4, 16, 2e-5, 0.1)
    # 34,385 steps of the first stage and 360 an epoch of the second.
    for one, num_rows, num_steps in ((nli, 550_152, 34_385), (sts, 5_749, 1_440)):
        assert len(make_batches(Rows({"sentence1": range(num_rows)}, None, []), one, 0)) == num_steps


def test_a_recipe_survives_being_written_down(write: Callable[[str, str], Path]) -> None:
    recipe = read_embed_recipe(write("recipe.toml", KPFSBERT), {"seed": 7})
    assert recipe.seed == 7
    assert EmbedRecipe(**json.loads(json.dumps(recipe.model_dump()))) == recipe


MISTAKES = (
    ("max_length = 64", "no stages"),
    ('[[stages]]\nkind = "nli_softmx"\ndata = ["klue-nli"]', "did you mean 'nli_softmax'?"),
    ('[[stages]]\ndata = ["klue-nli"]', "kind=''"),
    ('stages = ["nli_softmax"]', "kind=''"),
    ('[[stages]]\nkind = "sts_cosine"\ndata = []', "data="),
    ('[[stages]]\nkind = "sts_cosine"\ndata = ["korsts"]\nepoch = 1', "did you mean 'epochs'?"),
    ('[[stages]]\nkind = "sts_cosine"\ndata = ["korsts"]\ntemperature = 1', "unknown key 'temperature'"),
    ('[[stages]]\nkind = "dropout_pairs"\ndata = ["nsmc"]\ntemperature = 0', "temperature=0"),
    ('[[stages]]\nkind = "dropout_pairs"\ndata = ["nsmc"]\nbatch_size = 1', "batch_size=1"),
    ('[[stages]]\nkind = "dropout_pairs"\ndata = ["nsmc"]\npeak_lr = inf', "peak_lr"),
    ('seeds = 1\n[[stages]]\nkind = "sts_cosine"\ndata = ["korsts"]', "did you mean 'seed'?"),
    ('evaluate = ["korst"]\n[[stages]]\nkind = "sts_cosine"\ndata = ["korsts"]', "did you mean 'korsts'?"),
    (
        'evaluate = ["nsmc"]\n[[stages]]\nkind = "sts_cosine"\ndata = ["korsts"]',
        "not pairs with a similarity score",
    ),
    ("[[stages", "not a TOML file"),
)


def test_a_mistake_in_a_recipe_is_named(write: Callable[[str, str], Path], fails: Fails) -> None:
    for text, what in MISTAKES:
        path = write("recipe.toml", text)
        with fails(RecipeError, path, what):
            read_embed_recipe(path)


# --- rows -----------------------------------------------------------------------------------------------------------


def test_scores_are_brought_to_zero_to_one() -> None:
    examples = get_task("klue-sts-sample").read_split("train", NOWHERE).examples
    rows = rows_of(stage("sts_cosine", "klue-sts-sample"))
    assert rows == [(e.text, e.pair, e.label / 5) for e in examples]
    assert len(rows) == 190


def test_labels_become_numbers() -> None:
    examples = get_task("klue-nli-sample").read_split("train", NOWHERE).examples
    rows = rows_of(stage("nli_softmax", "klue-nli-sample"))
    assert [(one, two, NLI_LABELS[label]) for one, two, label in rows] == [(e.text, e.pair, e.label) for e in examples]


def test_every_entailed_hypothesis_gets_one_that_contradicts_its_premise() -> None:
    examples = get_task("klue-nli-sample").read_split("train", NOWHERE).examples
    labels = {(e.text, e.pair): e.label for e in examples}
    rows = rows_of(stage("nli_ranking", "klue-nli-sample"))
    found = sorted((premise, entailed) for premise, entailed, _ in rows)
    assert found == sorted(pair for pair, label in labels.items() if label == "entailment")
    assert all(labels[premise, negative] == "contradiction" for premise, _, negative in rows)


def test_contradictions_take_turns_and_a_premise_without_any_is_counted(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    header = "sentence1\tsentence2\tgold_label\n"
    lines = [
        "전제\t함의1\tentailment",
        "전제\t모순1\tcontradiction",
        "전제\t함의2\tentailment",
        "전제\t모순2\tcontradiction",
    ]
    lines += ["전제\t함의3\tentailment", "홀로\t함의\tentailment", "홀로\t중립\tneutral"]
    write("kornlu/KorNLI/snli_1.0_train.ko.tsv", header + "\n".join(lines) + "\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = read_rows(stage("nli_ranking", "kornli:snli"), tmp_path, "stage 1")
    assert list(zip(*rows.columns.values(), strict=True)) == [
        ("전제", "함의1", "모순1"),
        ("전제", "함의2", "모순2"),
        ("전제", "함의3", "모순1"),
    ]
    (source,) = rows.sources
    assert (source.name, source.num_rows, source.licence) == ("kornli:snli", 3, "CC-BY-SA-4.0")
    assert source.left_out == {"premise without entailment or without contradiction": 1}


def test_a_headline_is_paired_with_its_body_and_not_with_itself(write: Callable[[str, str], Path]) -> None:
    path = article_file(
        write,
        ("예산 확정", "예산 확정\n시의회가 확정했다."),
        ("", "제목이 없다."),
        ("제목뿐", "제목뿐"),
        ("예산 확정", "예산 확정\n시의회가 확정했다."),
        ("경기 종료", "2대1로 끝났다."),
    )
    rows = read_rows(stage("headline_body", path), NOWHERE, "stage 1")
    assert dict(rows.columns) == {
        "anchor": ("예산 확정", "경기 종료"),
        "positive": ("시의회가 확정했다.", "2대1로 끝났다."),
    }
    assert rows.sources[0].left_out == {"no title": 1, "no text but the title": 1, "repeated": 1}


def test_a_headline_has_a_similar_article_of_its_day_as_a_negative(tmp_path: Path) -> None:
    articles = [
        ("예산 확정", "시의회가 내년 예산을 확정했다.", "2026-07-01"),
        ("예산 심의", "도의회가 내년 예산을 심의했다고 밝혔다.", "2026. 7. 1. 오전 9:00"),
        ("경기 종료", "경기가 2대1로 끝났다.", "20260701"),
        ("예산 확정", "시의회가 내년 예산을 확정했다.", "2026-07-01"),
        ("예산 편성", "도의회가 내년 예산을 심의했다.", "2026-07-02"),
        ("날짜 없음", "도의회가 내년 예산을 심의했다고 한다.", ""),
        ("제목뿐", "제목뿐", "2026-07-01"),
    ]
    path = tmp_path / "articles.jsonl"
    lines = [json.dumps({"title": title, "text": text, "date": date}) for title, text, date in articles]
    path.write_text("\n".join(lines), encoding="utf-8")
    rows = read_rows(stage("headline_day", str(path), max_likeness=0.8), NOWHERE, "stage 1")
    bodies = [text for _, text, _ in articles]
    found = list(zip(*rows.columns.values(), strict=True))
    assert found[:2] == [("예산 확정", bodies[0], bodies[1]), ("예산 심의", bodies[1], bodies[0])]
    assert found[2][:2] == ("경기 종료", bodies[2])
    assert found[2][2] in bodies[:2]
    assert len(found) == 3
    assert rows.sources[0].left_out == {"no text but the title": 1, "repeated": 1, "no other story of the day": 2}
    # Its own story is nobody's negative.
    assert rows_of(stage("headline_day", str(path), max_likeness=0.1))[0][2] == bodies[2]


def test_whole_days_are_held_out(tmp_path: Path) -> None:
    days = [f"2026-07-{day:02}" for day in range(1, 31)]
    path = tmp_path / "articles.jsonl"
    records = [
        {"title": f"{day} 제목 {k}".strip(), "text": f"본문 {k}", "date": day} for day in [*days, ""] for k in range(3)
    ]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    rows = read_rows(stage("headline_body", str(path), held_out_days=0.4), NOWHERE, "stage 1")
    held_out = {day for day in days if is_held_out(day, 0.4)}
    assert 6 <= len(held_out) <= 18
    found = [title for title, _ in zip(*rows.columns.values(), strict=True)]
    assert found == [record["title"] for record in records if record["date"] not in held_out]
    assert rows.sources[0].left_out == {"held-out day": 3 * len(held_out)}
    # A larger share adds days, and takes none back.
    assert {day for day in days if is_held_out(day, 0.2)} < held_out
    assert not any(is_held_out(day, 0.0) for day in days)


def test_dropout_pairs_are_titles_and_lines_and_the_texts_of_tasks(write: Callable[[str, str], Path]) -> None:
    path = article_file(write, ("제목", "첫 줄\n\n둘째 줄"), ("제목", "첫 줄"))
    assert rows_of(stage("dropout_pairs", path)) == [(text, text) for text in ("제목", "첫 줄", "둘째 줄")]
    examples = get_task("klue-sts-sample").read_split("train", NOWHERE).examples
    texts = {text for one, text in rows_of(stage("dropout_pairs", "klue-sts-sample")) if one == text}
    assert texts == {e.text for e in examples} | {e.pair for e in examples}


def test_a_corpus_folder_and_the_embedded_articles_are_read(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    path = article_file(
        write, *((f"제목 {k}", f"본문 {k}은 다음과 같다. 시의회가 예산을 확정했다.") for k in range(40))
    )
    assert build_corpus([path, "--out", str(tmp_path / "corpus"), "--held-out", "0"]) == 0
    built = read_rows(stage("headline_body", str(tmp_path / "corpus")), NOWHERE, "stage 1")
    assert len(built) == 40
    sample = read_rows(stage("headline_body", "sample"), NOWHERE, "stage 1")
    assert len(sample) == 120
    assert sample.sources[0].licence == "CC0-1.0"
    assert built.sources[0].sha256 != sample.sources[0].sha256


def test_sources_are_concatenated_and_listed() -> None:
    rows = read_rows(stage("sts_cosine", "klue-sts-sample", "klue-sts-sample:dev"), NOWHERE, "stage 1")
    assert [(source.name, source.num_rows) for source in rows.sources] == [
        ("klue-sts-sample", 190),
        ("klue-sts-sample:dev", 70),
    ]
    assert len(rows) == 260


def test_pairs_have_no_order_and_no_white_space() -> None:
    rows = Rows({"sentence1": ["가 나", "다"], "sentence2": ["다", "가나"], "label": [0.0, 1.0]}, None, [])
    one, two = rows.pairs()
    assert one == two == frozenset((text_key("가나"), text_key("다")))


MISFITS = (
    ("sts_cosine", "korst", "did you mean 'korsts'?"),
    ("sts_cosine", "sample", "'sample' is not a task"),
    ("sts_cosine", "klue-nli-sample", "klue-nli-sample does not fit this stage"),
    ("nli_softmax", "nsmc-sample", "nsmc-sample does not fit this stage"),
    ("nli_ranking", "klue-sts-sample", "give e.g. kornli"),
    ("headline_body", "nsmc-sample", "a file with titles"),
    ("headline_body", "no/such/corpus", "not a task, file or folder"),
    ("headline_day", "nsmc-sample", "a file with titles"),
    ("dropout_pairs", "korquad-sample", "does not fit"),
    ("nli_softmax", "klue-nli-sample:tran", "did you mean 'train'?"),
)


def test_data_that_do_not_fit_their_stage_are_named(fails: Fails) -> None:
    for kind, name, what in MISFITS:
        with fails(RecipeError, "stage 2, data", what):
            read_rows(stage(kind, name), NOWHERE, "stage 2")


def test_unavailable_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataUnavailableError, match=r"snli_1\.0_train\.ko\.tsv: not under .* curl -fL"):
        read_rows(stage("nli_softmax", "kornli:snli"), tmp_path, "stage 1")


def test_a_single_row_is_refused(write: Callable[[str, str], Path], fails: Fails) -> None:
    path = article_file(write, ("제목", "본문"))
    with fails(DataError, "stage 1, data", "1 rows"):
        read_rows(stage("headline_body", path), NOWHERE, "stage 1")


@pytest.mark.real_data
def test_no_row_of_korsts_is_lost(real_data: Path) -> None:
    rows = read_rows(stage("sts_cosine", "korsts"), real_data, "stage 1")
    assert len(rows) == 5_749
    assert 0 == min(rows.columns["label"]) < max(rows.columns["label"]) == 1
    # Two labels and a score of 0 to 5 for a pair each: nothing but pairs of XNLI's development file.
    assert len(read_rows(stage("nli_softmax", "kornli:dev", "klue-nli:dev"), real_data, "stage 1")) == 5_490


# --- batches --------------------------------------------------------------------------------------------------------


def meeting(keys: Sequence[Sequence[int]]) -> Rows:
    return Rows({"anchor": range(len(keys))}, [frozenset(bytes([k]) for k in row) for row in keys], [])


@given(
    keys=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=2), min_size=2, max_size=60),
    size=st.integers(2, 9),
    seed=st.integers(0, 5),
)
def test_no_two_rows_of_a_batch_share_a_text(keys: list[list[int]], size: int, seed: int) -> None:
    rows = meeting(keys)
    batches = make_batches(rows, stage("headline_body", "sample", batch_size=size), seed)
    assert batches
    seen: list[int] = []
    for batch in batches:
        texts = [key for row in batch for key in set(keys[row])]
        assert len(texts) == len(set(texts))
        assert 0 < len(batch) <= size
        seen += batch
    assert len(seen) == len(set(seen))
    fullest = max(map(len, batches))
    assert all(2 * len(batch) >= fullest for batch in batches)


def test_rows_that_clash_are_used_in_another_batch() -> None:
    batches = make_batches(meeting([[k % 10] for k in range(80)]), stage("headline_body", "sample", batch_size=8), 3)
    used = [row for batch in batches for row in batch]
    assert len(used) == len(set(used)) >= 72


def test_without_in_batch_negatives_every_row_is_used_once_an_epoch() -> None:
    rows = Rows({"sentence1": range(50)}, None, [])
    batches = make_batches(rows, stage("sts_cosine", "korsts", epochs=3, batch_size=8), 0)
    assert [len(batch) for batch in batches] == [8, 8, 8, 8, 8, 8, 2] * 3
    epochs = [[row for batch in batches[first : first + 7] for row in batch] for first in (0, 7, 14)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_epochs_may_be_fractions() -> None:
    rows = Rows({"sentence1": range(50)}, None, [])
    for epochs, num_steps in ((0.01, 1), (0.5, 4), (1, 7), (2.5, 18)):
        batches = make_batches(rows, stage("sts_cosine", "korsts", epochs=epochs, batch_size=8), 0)
        assert len(batches) == num_steps, epochs


def test_the_order_is_decided_by_the_seed() -> None:
    rows = meeting([[k] for k in range(40)])
    draw = stage("dropout_pairs", "nsmc", batch_size=8)
    assert make_batches(rows, draw, 1) == make_batches(rows, draw, 1) != make_batches(rows, draw, 2)


def test_many_rows_of_one_title_do_not_slow_it_down() -> None:
    rows = meeting([[0] if k % 4 == 0 else [1 + k % 250] for k in range(60_000)])
    started = time.perf_counter()
    assert len(make_batches(rows, stage("headline_body", "sample"), 0)) > 100
    # Half a second; looking at all that wait for every batch takes minutes.
    assert time.perf_counter() - started < 20


def test_every_kind_has_a_stage_and_every_stage_a_kind() -> None:
    assert {kind: type(stage(kind, "x")) for kind in STAGES} == {
        "nli_softmax": NliSoftmax,
        "nli_ranking": NliRanking,
        "sts_cosine": StsCosine,
        "headline_body": HeadlineBody,
        "headline_day": HeadlineDay,
        "dropout_pairs": DropoutPairs,
        "teacher_vectors": TeacherVectors,
    }
    assert replace(Source("a", "b", "c"), num_rows=1).left_out == {}
