"""Tasks made out of other texts: balanced, apart, the same everywhere, and not solved by letters or lengths alone."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from downstream.finetune import TaskData, read_task
from downstream.finetuning import ngrams
from downstream.substitutes import Overlap, draw
from downstream.task import Answer, ChoiceExample, QuestionExample, TextExample, get_task
from downstream.tasks.derived.korquad_qnli import answering_sentence
from downstream.tasks.derived.news_swag import CONTEXT, read_articles, sentences_of

NOWHERE = Path("/nonexistent")
QNLI, SWAG = "korquad-qnli-devsplit", "news-swag"
MARGIN = 0.05
"""What letters and lengths may reach above chance."""


@pytest.fixture(scope="module")
def qnli(real_data: Path) -> TaskData:
    return read_task(get_task(QNLI), real_data)


@pytest.fixture(scope="module")
def swag(real_data: Path) -> TaskData:
    return read_task(get_task(SWAG), real_data)


# --- the measure ----------------------------------------------------------------------------------------------------


def test_overlap_is_the_share_of_n_grams_with_rare_ones_weighing_more() -> None:
    texts, others = ["가나 다!", "바"], ["가나", "나다", "마"]
    one_grams = Overlap(texts, others, (1, 0, 0, 0, 0, 0))([0, 1], [0, 1, 2])
    assert one_grams.tolist() == pytest.approx(np.array([[2 / 3, 2 / 3, 0], [0, 0, 0]]), abs=1e-6)
    assert Overlap(texts, others, (0, 0, 1, 0, 0, 0))([0], [0, 1])[0].tolist() == [0.5, 0.5]
    # 가 and 다 are in one of three texts, 나 in two.
    rare, common = np.log(4 / 2), np.log(4 / 3)
    expected = (rare + common) / (2 * rare + common)
    assert Overlap(texts, others, (0, 1, 0, 0, 0, 0))([0], [0])[0, 0] == pytest.approx(expected, abs=1e-6)


def test_draws_follow_from_their_purpose_alone_and_are_even() -> None:
    assert [draw(name, 1000) for name in ("a", "b")] == [draw(name, 1000) for name in ("a", "b")]
    counts = np.bincount([draw(str(k), 4) for k in range(4000)])
    assert len(counts) == 4
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(4000 * 0.25 * 0.75)


# --- the samples ----------------------------------------------------------------------------------------------------


def test_a_block_asks_every_question_of_both_sentences() -> None:
    examples = get_task("korquad-qnli-sample").read_split("train", NOWHERE).examples
    for k in range(0, len(examples), 4):
        one, wrong, two, other = examples[k : k + 4]
        assert [e.label for e in (one, wrong, two, other)] == ["answer", "none"] * 2
        assert one.text == wrong.text != two.text == other.text
        assert (one.pair, wrong.pair) == (other.pair, two.pair)


def test_the_answer_is_in_its_sentence_and_an_answer_across_sentences_in_none() -> None:
    context = "서울은 수도다. 부산은 항구다."
    asked = QuestionExample("q", "?", context, (Answer("항구", context.index("항구")),))
    assert answering_sentence(asked) == "부산은 항구다."
    assert answering_sentence(replace(asked, answers=(Answer("수도다. 부산", context.index("수도")),))) == ""


def test_the_same_examples_are_made_in_another_process() -> None:
    names = ("korquad-qnli-sample", "news-swag-sample")
    code = "import sys; from pathlib import Path; from downstream.task import get_task\n"
    code += "for name in sys.argv[1:]: print(get_task(name).read_split('dev', Path('/nonexistent')).sha256)"
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", code, *names]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.split() == [get_task(name).read_split("dev", NOWHERE).sha256 for name in names]


def test_choices_continue_sample_articles_and_every_one_is_right_once() -> None:
    task = get_task("news-swag-sample")
    articles = {document.id: sentences_of(document) for document in read_articles(task.path("dev", NOWHERE))}
    data = read_task(task, NOWHERE)
    assert_continues(data.eval.examples, articles)
    assert_grouped(data.eval.examples)
    assert not articles_of(data.train.examples) & articles_of(data.eval.examples)


def assert_continues(examples: Sequence[ChoiceExample], articles: dict[str, list[str]]) -> None:
    for example in examples:
        article, _, number = example.id.rpartition("/")
        sentences = articles[article]
        assert example.text == " ".join(sentences[int(number) - CONTEXT : int(number)])
        assert example.choices[int(str(example.label))] == sentences[int(number)]


def articles_of(examples: Sequence[Any]) -> set[str]:
    return {example.id.rpartition("/")[0] for example in examples}


def assert_grouped(examples: Sequence[ChoiceExample]) -> None:
    """Four contexts have the same four choices, each of which is right for one of them and in the others' nowhere."""
    assert len(examples) % 4 == 0
    for k in range(0, len(examples), 4):
        group = examples[k : k + 4]
        choices = {choice for example in group for choice in example.choices}
        assert len(choices) == 4
        assert {example.choices[int(str(example.label))] for example in group} == choices
        assert not any(choice in example.text for example in group for choice in choices)


# --- the official files ---------------------------------------------------------------------------------------------


def is_at_chance(right: Sequence[bool], chance: float) -> bool:
    """Whether the share of RIGHT is below chance plus the margin."""
    return float(np.mean(right)) <= chance + MARGIN


@pytest.mark.real_data
def test_questions_and_sentences_are_balanced_and_parts_share_none(qnli: TaskData) -> None:
    for split in (qnli.train, qnli.eval):
        assert Counter(split.golds) == dict.fromkeys(("answer", "none"), len(split.golds) // 2)
        for field in ("text", "pair"):
            labels: dict[str, Counter[str]] = {}
            for example in split.examples:
                labels.setdefault(getattr(example, field), Counter())[example.label] += 1
            # A sentence that answers several questions is in several blocks, once right and once wrong in each.
            assert all(counts["answer"] == counts["none"] for counts in labels.values())
    texts = [{text for e in split.examples for text in (e.text, e.pair)} for split in (qnli.train, qnli.eval)]
    assert not texts[0] & texts[1]


@pytest.mark.real_data
def test_overlap_alone_does_not_find_the_answering_sentence(qnli: TaskData) -> None:
    """By any weighing of the measures at once, fitted on the training part."""

    def measures(examples: Sequence[TextExample]) -> Any:
        texts, others = [e.text for e in examples], [e.pair or "" for e in examples]
        shares = [Overlap(texts, others, weights) for weights in np.eye(6).tolist()]
        return np.array([[float(share([k], [k])[0, 0]) for share in shares] for k in range(len(examples))])

    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(measures(qnli.train.examples), qnli.train.golds)
    assert is_at_chance(model.predict(measures(qnli.eval.examples)) == np.array(qnli.eval.golds), 0.5)


@pytest.mark.real_data
def test_tfidf_does_not_find_the_answering_sentence(qnli: TaskData) -> None:
    from eval.contestants.tfidf import Tfidf

    predictions = Tfidf(name="tfidf").fit(get_task(QNLI), qnli.train.examples).predict(qnli.eval.examples)
    assert is_at_chance([p == gold for p, gold in zip(predictions, qnli.eval.golds, strict=True)], 0.5)


@pytest.mark.real_data
def test_choices_continue_articles_and_labels_are_even_and_parts_share_none(swag: TaskData, real_data: Path) -> None:
    documents = read_articles(get_task(SWAG).path("dev", real_data))
    articles = {document.id: sentences_of(document) for document in documents}
    for split in (swag.train, swag.eval):
        assert_continues(split.examples, articles)
        number = len(split.examples)
        assert_grouped(split.examples)
        assert all(abs(count - number / 4) < 4 * np.sqrt(number * 3 / 16) for count in Counter(split.golds).values())
    sentences = [
        {sentence for e in split.examples for sentence in e.choices} | {e.text for e in split.examples}
        for split in (swag.train, swag.eval)
    ]
    assert not sentences[0] & sentences[1]
    assert not articles_of(swag.train.examples) & articles_of(swag.eval.examples)


LENGTHS: dict[str, Callable[[str], float]] = {"longest": len, "shortest": lambda choice: -len(choice)}


@pytest.mark.real_data
def test_length_does_not_find_the_continuation(swag: TaskData, subtests: pytest.Subtests) -> None:
    for rule in LENGTHS:
        with subtests.test(rule=rule):
            right = [max(e.choices, key=LENGTHS[rule]) == e.choices[int(e.label)] for e in swag.eval.examples]
            assert is_at_chance(right, 0.25)


def choice_pairs(examples: Sequence[ChoiceExample]) -> tuple[list[str], list[str]]:
    """Return the contexts, each four times, and the choices."""
    return [e.text for e in examples for _ in e.choices], [choice for e in examples for choice in e.choices]


def choice_numbers(examples: Sequence[ChoiceExample]) -> np.ndarray[Any, Any]:
    return np.array([int(e.label) for e in examples])


@pytest.fixture(scope="module")
def likeness(swag: TaskData) -> dict[str, np.ndarray[Any, Any]]:
    """Return the likeness of contexts and choices as the `tfidf` baseline measures it, by part."""
    from eval.contestants.tfidf import Similarity

    similarity = Similarity([text for some in choice_pairs(swag.train.examples) for text in some])
    return {name: similarity(*choice_pairs(getattr(swag, name).examples)) for name in ("train", "eval")}


@pytest.mark.slow
@pytest.mark.real_data
def test_letters_do_not_find_the_continuation(swag: TaskData, likeness: dict[str, np.ndarray[Any, Any]]) -> None:
    """What the `tfidf` baseline reads of pairs, n-grams and likeness, ranks the choices."""
    known = [text for some in choice_pairs(swag.train.examples) for text in some]
    vectorizer = ngrams.vectorizer(*ngrams.LENGTHS).fit(known)

    def features(name: str) -> Any:
        a, b = (vectorizer.transform(texts) for texts in choice_pairs(getattr(swag, name).examples))
        return sparse.hstack([b, a.multiply(b), b - a.multiply(b > 0), likeness[name]]).tocsr()

    is_right = [str(k) == e.label for e in swag.train.examples for k in range(4)]
    model = LogisticRegression(C=ngrams.C, max_iter=300).fit(features("train"), is_right)
    scores = model.decision_function(features("eval")).reshape(-1, 4)
    assert is_at_chance(scores.argmax(1) == choice_numbers(swag.eval.examples), 0.25)


@pytest.mark.real_data
def test_likeness_to_the_context_does_not_find_the_continuation(
    swag: TaskData, likeness: dict[str, np.ndarray[Any, Any]]
) -> None:
    measured = likeness["eval"].reshape(-1, 4, 6)
    for measure in range(6):
        best = measured[:, :, measure].argmax(1)
        assert is_at_chance(best == choice_numbers(swag.eval.examples), 0.25), measure
