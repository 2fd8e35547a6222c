"""Contamination: planted copies are counted exactly, and finished pairs stay."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpora.build import BuildConfig, build
from corpora.cleaning import letters_of
from corpora.foundation.errors import DataError, ResultError, UsageError
from corpora.foundation.files import parse_signed, sha256, write_signed
from corpora.overlap import MEASURES, EvaluationIndex, Measure, OverlapConfig
from corpora.training_text import TrainingText
from downstream.task import QuestionExample, Split, Task, TextExample, get_task
from eval.board.clean_scores import touched_examples
from eval.contamination import check as contamination
from eval.contamination.__main__ import main
from eval.contamination.check import ContaminationCheck, Source, corpus_source, texts_of
from eval.contamination.files import Pair, find_pairs, hits_path, pair_path, read_hits, read_pair
from eval.contamination.report import publish_excerpts

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
NSMC, QUAD, NLI = (get_task(f"{name}-sample") for name in ("nsmc", "korquad", "klue-nli"))
SYLLABLES = [chr(code) for code in range(ord("가"), ord("힣"), 19)]


def evaluation(task: Task) -> Split:
    return task.read_split(task.eval_split, NOWHERE)


def filler(seed: int, number: int = 12) -> str:
    rng = np.random.default_rng(seed)
    return " ".join("".join(rng.choice(SYLLABLES, 4)) for _ in range(number)) + "."


LONG = [example for example in evaluation(NSMC).examples if len(letters_of(example.text)) >= 26]
CONTEXTS = list(dict.fromkeys(example.context for example in evaluation(QUAD).examples))
EXACT, NORMALISED, QUOTED = LONG[0], LONG[1], LONG[2]
HYPOTHESIS = evaluation(NLI).examples[0]


def planted() -> list[str]:
    """Return documents: fillers, and among them a copy of every kind."""
    changed = CONTEXTS[1].replace(CONTEXTS[1][20:24], "")
    eojeol = CONTEXTS[2].split()
    copies = [
        EXACT.text,
        NORMALISED.text.replace(" ", "") + "!!!",
        f"{filler(1)} 어떤 이는 {QUOTED.text} 라고 썼다.",
        HYPOTHESIS.pair,
        changed,
        f"{filler(2)} {' '.join(eojeol[5:18])} {filler(3)}",
    ]
    return [*(filler(seed) for seed in range(100, 130)), *copies, *(filler(seed) for seed in range(130, 160))]


@pytest.fixture
def corpus(write: Write, tmp_path: Path) -> Path:
    source = write("in/texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in planted()))
    build([source], tmp_path / "corpus", BuildConfig(held_out=0))
    return tmp_path / "corpus"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def check(out: Path, corpora: Sequence[Path | Source] = (), tasks: Sequence[Task] = (NSMC, QUAD, NLI)) -> None:
    sources = [each if isinstance(each, Source) else corpus_source(str(each)) for each in corpora]
    ContaminationCheck(tasks, sources, root=NOWHERE, out=out).run()


def hits_of(out: Path, task: Task, measure: Measure, corpus: str = "corpus") -> list[tuple[str, str]]:
    """Return example and field of every hit."""
    hits = read_hits(hits_path(out, task.name, corpus))
    return [(hit.example, hit.field) for hit in hits if hit.measure == measure]


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# ---- what is found ----


def test_planted_copies_are_found_and_counted_by_kind(corpus: Path, out: Path) -> None:
    check(out, [corpus])
    pair = read_pair(pair_path(out, NSMC.name, "corpus"))
    assert (pair.status, pair.source, pair.num_examples, pair.num_documents) == ("ok", "corpus", 140, 66)
    assert hits_of(out, NSMC, "exact") == [(EXACT.id, "text")]
    copies = sorted([EXACT, NORMALISED, QUOTED], key=lambda example: evaluation(NSMC).examples.index(example))
    assert hits_of(out, NSMC, "normalised") == [(example.id, "text") for example in copies]
    assert hits_of(out, NSMC, "letter_ngram") == [(example.id, "text") for example in copies]
    assert {EXACT.id, NORMALISED.id} <= {example for example, _ in hits_of(out, NSMC, "minhash")}
    counts = pair.measures["normalised"]
    assert (counts.num_applicable, counts.num_touched, counts.num_touched_short) == (140, 3, 0)
    assert (counts.share, counts.fields, counts.num_documents) == (3 / 140, {"text": 3}, 3)
    assert [counts.num_touched for counts in read_pair(pair_path(out, NSMC.name, "train")).measures.values()] == [0] * 5


def test_every_field_is_looked_for_and_every_example_with_the_text_is_touched(corpus: Path, out: Path) -> None:
    check(out, [corpus])
    assert hits_of(out, NLI, "exact") == [(HYPOTHESIS.id, "pair")]
    assert hits_of(out, QUAD, "exact") == []
    examples = evaluation(QUAD).examples
    with_context = [[(e.id, "context") for e in examples if e.context == context] for context in CONTEXTS]
    assert len(with_context[2]) > 1
    assert hits_of(out, QUAD, "minhash") == with_context[1]
    assert set(hits_of(out, QUAD, "ngram")) == {*with_context[1], *with_context[2]}
    pair = read_pair(pair_path(out, QUAD.name, "corpus"))
    assert pair.measures["ngram"].fields == {"context": len(with_context[1]) + len(with_context[2])}
    partial = [
        hit for hit in read_hits(hits_path(out, QUAD.name, "corpus")) if hit.text == " ".join(CONTEXTS[2].split())
    ]
    assert {(hit.measure, hit.num_documents) for hit in partial} == {("ngram", 1)}
    num_ngrams = len(CONTEXTS[2].split()) - 12
    assert partial[0].similarity == pytest.approx(1 / num_ngrams, abs=1e-4)


def test_texts_of_an_example_are_those_that_a_model_reads() -> None:
    assert texts_of(TextExample("1", "가", None, "x")) == {"text": "가"}
    assert texts_of(TextExample("1", "가", "나", "x")) == {"text": "가", "pair": "나"}
    assert texts_of(QuestionExample("1", "누가?", "그가 왔다.", ())) == {"question": "누가?", "context": "그가 왔다."}


def test_a_hit_shows_where_it_is_from(corpus: Path, out: Path) -> None:
    check(out, [corpus])
    (hit,) = [
        h
        for h in read_hits(hits_path(out, NSMC.name, "corpus"))
        if h.example == QUOTED.id and h.measure == "normalised"
    ]
    assert evaluation(NSMC).examples[hit.position].id == QUOTED.id
    assert (hit.similarity, hit.num_documents, hit.num_letters) == (1, 1, len(letters_of(QUOTED.text)))
    assert hit.document == "texts.jsonl:33"  # thirty fillers and two copies stand before it
    assert hit.text == QUOTED.text
    assert hit.text[:30] in hit.snippet


def test_touched_train_examples_of_a_task_are_found_in_its_own_test(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = evaluation(NSMC).examples
    train = NSMC.read_split("train", NOWHERE)
    leaked = replace(train, examples=(*train.examples, *(replace(test[k], id=f"leak-{k}") for k in (3, 3 + 1, 5))))
    plain = Task.read_split
    monkeypatch.setattr(
        Task, "read_split", lambda task, split, root: leaked if split == "train" else plain(task, split, root)
    )
    check(out, tasks=[NSMC])
    pair = read_pair(pair_path(out, NSMC.name, "train"))
    assert pair.source == "split"
    assert pair.num_documents == len(leaked.examples)
    assert pair.measures["exact"].num_documents == pair.measures["exact"].num_touched == 3
    assert touched_examples(out, NSMC.name, "train")["exact"].positions == {3, 4, 5}
    assert touched_examples(out, NSMC.name, "train")["exact"].ids == {test[k].id for k in (3, 4, 5)}


@pytest.mark.real_data
@pytest.mark.slow
def test_the_train_rows_of_nsmc_whose_text_occurs_in_test_are_found(real_data: Path, out: Path) -> None:
    nsmc = get_task("nsmc")
    ContaminationCheck([nsmc], [], root=real_data, out=out).run()
    exact = read_pair(pair_path(out, "nsmc", "train")).measures["exact"]
    assert exact.num_documents == 3512
    test, train = nsmc.read_split("test", real_data).examples, nsmc.read_split("train", real_data).examples
    texts = {example.text for example in train}
    expected = {example.id for example in test if example.text in texts}
    assert touched_examples(out, "nsmc", "train")["exact"].ids == expected
    assert exact.num_touched == len(expected) == 1571
    assert exact.num_applicable == 50_000


# ---- what is written, and what is kept ----


def test_a_second_run_skips_every_pair_and_changes_no_byte(
    corpus: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(out, [corpus])
    before = content(out)
    monkeypatch.setattr(contamination, "EvaluationIndex", lambda *_: pytest.fail("a finished pair was checked again"))
    check(out, [corpus])
    assert content(out) == before
    assert "6 pairs were finished before and skipped" in capsys.readouterr().err


def test_the_same_data_give_the_same_bytes_in_any_order_of_work(corpus: Path, out: Path, tmp_path: Path) -> None:
    check(out, [corpus])
    for task in (NLI, QUAD, NSMC):
        check(tmp_path / "other", [corpus], tasks=[task])
    assert content(tmp_path / "other") == content(out)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the number of texts of every index that is made from now on."""
    sizes: list[int] = []

    def note(texts: Sequence[str], config: OverlapConfig) -> EvaluationIndex:
        sizes.append(len(texts))
        return EvaluationIndex(texts, config)

    monkeypatch.setattr(contamination, "EvaluationIndex", note)
    return sizes


def test_a_pair_is_checked_again_when_something_changed(
    corpus: Path, out: Path, write: Write, tmp_path: Path, checked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(out, [corpus], tasks=[NSMC])
    assert len(checked) == 2
    source = write("more/texts.jsonl", json.dumps({"text": LONG[5].text}) + "\n")
    build([source], tmp_path / "new" / "corpus", BuildConfig(held_out=0))
    check(out, [tmp_path / "new" / "corpus"], tasks=[NSMC])
    assert len(checked) == 3  # of the same name, but another corpus; the training split stays
    assert hits_of(out, NSMC, "exact") == [(LONG[5].id, "text")]
    monkeypatch.setattr(contamination, "CODE", (*contamination.CODE, "eval"))
    check(out, [tmp_path / "new" / "corpus"], tasks=[NSMC])
    assert len(checked) == 5
    monkeypatch.setattr(contamination, "SETTINGS", OverlapConfig(min_share=0.9))
    check(out, [tmp_path / "new" / "corpus"], tasks=[NSMC])
    assert len(checked) == 7


def test_damaged_files_are_reported_and_written_again(
    corpus: Path, out: Path, checked: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    check(out, [corpus], tasks=[NSMC])
    before = content(out)
    pair, hits = pair_path(out, NSMC.name, "corpus"), hits_path(out, NSMC.name, "corpus")
    marked = parse_signed(pair.read_text(encoding="utf-8")) | {"is_excerpt": True}
    damages: dict[str, Callable[[], object]] = {
        "hits": lambda: hits.write_text("x", encoding="utf-8"),
        "pair": lambda: pair.write_text('{"schema": 1', encoding="utf-8"),
        "missing": hits.unlink,
        "excerpt": lambda: write_signed(pair, marked),
    }
    for number, (damage, harm) in enumerate(damages.items(), start=3):
        harm()
        capsys.readouterr()
        check(out, [corpus], tasks=[NSMC])
        assert len(checked) == number, damage
        assert content(out) == before, damage
        assert (str(pair) in capsys.readouterr().err) == (damage == "pair"), damage


def test_what_was_finished_before_a_crash_is_kept(corpus: Path, out: Path, checked: list[int]) -> None:
    def broken() -> Iterator[TrainingText]:
        yield TrainingText("1", (EXACT.text,))
        raise DataError("there", "broken", "mend it")

    source = replace(corpus_source(str(corpus)), name="broken", read=broken)
    with pytest.raises(DataError):
        check(out, [corpus, source], tasks=[NSMC])
    assert [pair.corpus for pair in find_pairs(out)[0]] == ["train", "corpus"]
    check(out, [corpus], tasks=[NSMC])
    assert len(checked) == 3  # none for the last call


def test_the_file_of_all_pairs_and_the_page_say_what_the_pairs_say(corpus: Path, out: Path) -> None:
    check(out, [corpus])
    board = json.loads((out / "contamination.json").read_text(encoding="utf-8"))
    assert board["schema"] == 1
    assert [(pair["task"], pair["corpus"]) for pair in board["pairs"]] == [
        (task.name, name) for task in (NLI, QUAD, NSMC) for name in ("train", "corpus")
    ]
    assert [Pair.model_validate(pair) for pair in board["pairs"]] == find_pairs(out)[0]
    for pair in find_pairs(out)[0]:
        assert sha256(out / pair.hits) == pair.hits_sha256
        assert list(pair.measures) == list(MEASURES)
        assert pair.recipe["settings"]["ngram"] == 13
        assert pair.data_sha256 == evaluation(get_task(pair.task)).sha256
    page = (out / "contamination.md").read_text(encoding="utf-8")
    assert "## 겹친 예제 (overlapping examples)" in page
    assert "| nsmc-sample test | corpus | 140 | 1 (0.71%) · 1 | 3 (2.14%) · 3 |" in page
    assert "| nsmc-sample test | corpus | 66 | 1 | 3 |" in page


def test_pairs_without_overlap_are_listed_by_task_and_have_no_row(corpus: Path, out: Path) -> None:
    check(out, [corpus])
    page = (out / "contamination.md").read_text(encoding="utf-8")
    table = page.partition("## 겹친 학습 문서")[0]
    rows = {tuple(row.split(" | ")[:2]) for row in re.findall(r"^\| (.+) \|$", table, re.M)[2:]}
    splits = {f"{pair.task} {pair.split}" for pair in find_pairs(out)[0]}
    assert rows == {(split, "corpus") for split in splits}
    for split in splits:
        assert f"- {split}: train (자체 학습 분할, own training split)\n" in page


def test_a_measure_that_applies_to_nothing_has_no_share(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Split(
        tuple(TextExample(str(k), text, None, "positive") for k, text in enumerate(["굿", "재밌다", ""])), "a"
    )
    monkeypatch.setattr(Task, "read_split", lambda *_: short)
    check(out, tasks=[NSMC])
    measures = read_pair(pair_path(out, NSMC.name, "train")).measures
    assert [counts.num_applicable for counts in measures.values()] == [3, 2, 0, 0, 0]
    assert [counts.share for counts in measures.values()] == [1, 1, None, None, None]
    assert [counts.num_touched_short for counts in measures.values()] == [3, 2, 0, 0, 0]
    assert "| 3 | 3 (100.00%) · 0 | 2 (100.00%) · 0 | — | — | — |" in (out / "contamination.md").read_text("utf-8")


def test_touched_examples_come_by_measure_by_any_and_by_length(corpus: Path, out: Path, fails: Fails) -> None:
    check(out, [corpus])
    touched = touched_examples(out, NSMC.name, "corpus")
    assert list(touched) == [*MEASURES, "any"]
    assert touched["exact"].ids == {EXACT.id}
    assert touched["any"].ids == {EXACT.id, NORMALISED.id, QUOTED.id}
    assert touched["any"].positions == {
        k for k, e in enumerate(evaluation(NSMC).examples) if e.id in touched["any"].ids
    }
    assert touched_examples(out, NSMC.name, "corpus", min_letters=10_000)["any"].ids == frozenset()
    with fails(ResultError, pair_path(out, NSMC.name, "elsewhere"), "python -m eval.contamination"):
        touched_examples(out, NSMC.name, "elsewhere")
    path = hits_path(out, NSMC.name, "corpus")
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:2]), "utf-8")
    with fails(ResultError, path, "not the hits that were counted"):
        touched_examples(out, NSMC.name, "corpus")


def test_a_published_report_keeps_the_counts_and_twenty_hits(
    out: Path, tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Task.read_split
    monkeypatch.setattr(Task, "read_split", lambda task, _, root: plain(task, task.eval_split, root))
    check(out, tasks=[NSMC])
    published = tmp_path / "published"
    paths = publish_excerpts(out, published)
    assert {path.name for path in paths} == {"train.hits.tsv", "contamination.json", "contamination.md"}
    (whole,), (pair,) = (
        [Pair.model_validate(pair) for pair in json.loads((folder / "contamination.json").read_text("utf-8"))["pairs"]]
        for folder in (out, published)
    )
    hits, path = read_hits(out / whole.hits), published / pair.hits
    assert (whole.num_hits, whole.is_excerpt) == (len(hits), False)
    assert (pair.num_hits, pair.is_excerpt, pair.hits_sha256) == (len(hits), True, sha256(path))
    assert pair.measures == whole.measures
    shown = read_hits(path)
    assert len(shown) == 20 < len(hits)
    assert shown == [hit for hit in hits if hit in shown]
    assert {hit.measure for hit in shown} == {hit.measure for hit in hits}
    page = (published / "contamination.md").read_text("utf-8")
    assert "at most 20 hits" in page
    assert "at most 20 hits" not in (out / "contamination.md").read_text("utf-8")
    pair_path(published, NSMC.name, "train").write_text(pair.model_dump_json(by_alias=True), encoding="utf-8")
    with fails(ResultError, path, f"an excerpt of 20 of {len(hits)} hits"):
        touched_examples(published, NSMC.name, "train")


# ---- the command ----


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eval.contamination", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_the_command_prints_the_table_and_says_where_the_time_went(corpus: Path, out: Path) -> None:
    done = command("--corpus", f"뉴스={corpus}", "--tasks", "nsmc-sample", "--out", out)
    assert (done.returncode, done.stdout) == (0, (out / "contamination.md").read_text(encoding="utf-8"))
    assert "| nsmc-sample test | 뉴스 | 140 | 1 (0.71%)" in done.stdout
    assert "뉴스: 66 documents in " in done.stderr
    assert "Traceback" not in done.stderr


def test_without_arguments_the_sample_is_checked_against_its_own_training_text(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(out)]) == 0
    assert {pair.task for pair in find_pairs(out)[0]} == {
        f"{name}-sample" for name in ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc")
    }
    assert all(pair.measures["exact"].num_touched == 0 for pair in find_pairs(out)[0])
    assert capsys.readouterr().out.startswith("# ")


def test_missing_data_are_a_failed_pair_with_its_reason(
    corpus: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    arguments = ["--corpus", str(corpus), "--tasks", "nsmc-sample", "korquad", "--data", str(tmp_path / "data")]
    assert main([*arguments, "--out", str(out)]) == 1
    assert "korquad in corpus: unavailable: " in capsys.readouterr().err
    pairs = json.loads((out / "contamination.json").read_text(encoding="utf-8"))["pairs"]
    assert [(pair["task"], pair["corpus"], pair["status"]) for pair in pairs] == [
        ("korquad", "train", "unavailable"),
        ("korquad", "corpus", "unavailable"),
        ("nsmc-sample", "train", "ok"),
        ("nsmc-sample", "corpus", "ok"),
    ]
    assert "curl" in pairs[0]["reason"]
    assert "- korquad · corpus: " in (out / "contamination.md").read_text(encoding="utf-8")


def test_a_wrong_argument_is_one_line(corpus: Path, out: Path, tmp_path: Path, fails: Fails) -> None:
    def run(*arguments: object) -> None:
        main([*map(str, arguments), "--out", str(out)])

    with fails(DataError, tmp_path / "no", "no such file"):
        run("--corpus", tmp_path / "no")
    with fails(DataError, out.parent, "no corpus"):
        run("--corpus", out.parent)
    with fails(UsageError, "--tasks", "nscm", "did you mean"):
        run("--tasks", "nscm")
    with fails(UsageError, "--corpus", "two training texts are called 'corpus'"):
        run("--corpus", corpus, corpus)
    with fails(UsageError, "--corpus", "two training texts are called 'train'"):
        run("--corpus", f"train={corpus}")
    with fails(UsageError, "--corpus", "'../x' cannot be a file's name"):
        run("--corpus", f"../x={corpus}")
    with fails(UsageError, "python -m eval.contamination", "unknown option '--corpora'"):
        run("--corpora", corpus)
    assert not out.exists()
    out.write_text("", encoding="utf-8")
    with fails(ResultError, out, "cannot write"):
        run("--tasks", "nsmc-sample")


def test_the_command_ends_with_one_line_and_code_2_when_the_user_must_fix_something(out: Path) -> None:
    done = command("--corpus", "nowhere", "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nowhere: no such file or folder; check the path\n"
