"""The tokenization upper bound: 1 if every character is a token, less if a token crosses the border of a label."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from transformers import BertTokenizer

from corpora.foundation.errors import UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.task import Answer, QuestionExample, Split, TextExample, get_task
from eval.ceiling import ceiling, main
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

Fails = Callable[..., AbstractContextManager[None]]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def tokenizer_of(subwords: Iterable[str]) -> BertTokenizer:
    """Build a cased WordPiece tokenizer with SUBWORDS at the start of a word and inside it."""
    known = [*SPECIAL, *(mark + subword for subword in sorted(set(subwords)) for mark in ("", "##"))]
    return BertTokenizer(
        vocab={subword: k for k, subword in enumerate(known)}, do_lower_case=False, model_max_length=512
    )


def named(text: str, *tags: str) -> Split:
    return Split((TextExample("1", text, None, " ".join(tags)),), "0")


def asked(context: str, answer: str) -> Split:
    return Split((QuestionExample("1", "어디", context, (Answer(answer, context.index(answer)),)),), "0")


NAME = named("서울에서 봄", "B-LC", "I-LC", "O", "O", "B-DT")


def test_an_entity_is_out_of_reach_if_a_token_holds_its_particle() -> None:
    cases = [
        (["서울", "에서", "봄"], 1.0),
        (["서", "울", "에", "서", "봄"], 1.0),
        # 서울에서 is marked as a whole: of the two types one is found, and the mean of their F1 is a half.
        (["서울에서", "봄"], 0.5),
    ]
    for subwords, entity_f1 in cases:
        scores = ceiling(get_task("klue-ner"), NAME, tokenizer_of(subwords)).scores
        assert scores["entity_f1"] == entity_f1, subwords


def test_an_answer_is_out_of_reach_if_a_token_holds_its_particle() -> None:
    for subwords, exact_match in ((["서울", "에서", "봄"], 1.0), (["서울에서", "봄"], 0.0)):
        split = asked("봄 서울에서 봄", "서울")
        scores = ceiling(get_task("korquad"), split, tokenizer_of(["어디", *subwords])).scores
        assert scores["exact_match"] == exact_match, subwords
        assert scores["f1"] > 0.5, subwords


def test_tokens_of_an_eojeol_are_counted_once_for_a_context_that_is_asked_twice() -> None:
    first = asked("봄 서울에서 봄", "서울").examples[0]
    second = QuestionExample("2", "언제", first.context, (Answer("봄", 0),))
    tokenizer = tokenizer_of(["서울", "에서", "봄"])
    found = [
        ceiling(get_task("korquad"), Split(examples, "0"), tokenizer).tokens_per_eojeol
        for examples in ((first,), (first, second))
    ]
    assert found == [4 / 3, 4 / 3]


def test_characters_set_no_bound_for_answers_of_up_to_thirty() -> None:
    for task in ("korquad-sample", "klue-mrc-sample"):
        split = get_task(task).read_split("dev", SAMPLE_ROOT)
        short = tuple(e for e in split.examples if all(len(answer.text.replace(" ", "")) <= 30 for answer in e.answers))
        characters = {c for e in short for c in e.context + e.question if not c.isspace()}
        assert len(short) > 50, task
        scores = ceiling(get_task(task), Split(short, "0"), tokenizer_of(characters)).scores
        assert set(scores.values()) == {1.0}, task


def test_labels_of_whole_texts_have_no_ceiling(fails: Fails) -> None:
    split = get_task("nsmc-sample").read_split("test", SAMPLE_ROOT)
    with fails(UsageError, "--tasks", "nsmc-sample", "korquad"):
        ceiling(get_task("nsmc-sample"), split, tokenizer_of("가"))


def run(capsys: pytest.CaptureFixture[str], *models: str) -> Sequence[str]:
    assert main(["--tasks", "korquad-sample", "--models", *models]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_table_has_a_row_for_every_task_and_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    texts = ["기자 협회 는 서울 에서 열린 회의 를 열었다"] * 9
    save_tokenizer(train_wordpiece(texts, 60, min_frequency=1), tmp_path / "vocabulary")
    rows = run(capsys, "pressbert-mini", f"mine={tmp_path / 'vocabulary'}")[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| korquad-sample", "pressbert-mini"],
        ["| korquad-sample", "mine"],
    ]
    assert all(0 < float(row.split("EM ")[1].split(",")[0]) <= 100 for row in rows)


def test_a_baseline_reads_no_tokens(fails: Fails) -> None:
    with fails(UsageError, "--models", "'tfidf' is not an encoder"):
        main(["--tasks", "korquad-sample", "--models", "tfidf"])
