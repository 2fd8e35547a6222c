"""KorQuAD as sentence pairs: does this sentence contain the answer? After QNLI (Wang et al. 2019, GLUE).

Derived from KorQuAD's files when they are read: no derivative of them is distributed.

In KorQuAD the sentence with the answer repeats most of its question: in 85 % of cases it shares more 2-grams with the
question than any other sentence. So that overlap does not solve the task, only *blocks* of two questions of a passage
are kept whose answers are in different sentences:

| | sentence that answers the first | sentence that answers the second |
| --- | --- | --- |
| first question | answer | none |
| second question | none | answer |

Every question and every sentence is correct once and wrong once, so neither alone predicts the label, its length
included. A block's *advantage* is the overlap of its two correct pairs minus that of its two wrong pairs. Blocks are
taken in ascending order of advantage, each question once, while the sum of advantages does not exceed zero: averaged
over the task, correct pairs overlap as much as wrong ones. Sentences that contain the other question's answer form no
block.
"""

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from corpora.sentences import Sentence
from downstream.families.classification import Classification
from downstream.metrics import accuracy
from downstream.readers import read_squad
from downstream.substitutes import DECIMALS, Division, Overlap
from downstream.task import FinetuneConfig, QuestionExample, Task, TextExample
from downstream.tasks import korquad
from downstream.tasks.derived._passages import split_passage

LABELS = ("none", "answer")
MIN_BLOCKS, MAX_BLOCKS = 28, 2_000
"""Blocks of a split. The minimum is for the embedded sample, which has too few questions for the rule; the maximum
fixes the size without the file."""
SHORTEST_SHARED = 20
"""Characters of a shared sentence from which on two articles count as related."""
WEIGHTS = (1.4, 0.1, 9.7, 5.5, -3.9, -3.5)
"""Weights of the shares in `Overlap`: rounded from a logistic regression that separates correct from wrong pairs of a
block in the training part of `korquad-qnli-devsplit`. They measure what characters alone predict."""


def make_pairs(_split: str, questions: Sequence[QuestionExample]) -> list[TextExample]:
    """Return the pairs of question and sentence, four per block; `text` is the question."""
    passages: dict[str, list[int]] = defaultdict(list)
    for k, question in enumerate(questions):
        passages[question.context].append(k)
    sentences = [answering_sentence(question) for question in questions]
    overlap = Overlap([question.question for question in questions], sentences, WEIGHTS)
    blocks: list[tuple[float, int, int]] = []
    for asked in passages.values():
        scores = overlap(asked, asked)  # (questions, sentences)
        for (a, one), (b, two) in combinations(enumerate(asked), 2):
            if _makes_block(questions[one], sentences[one], questions[two], sentences[two]):
                advantage = scores[a, a] + scores[b, b] - scores[a, b] - scores[b, a]
                blocks.append((round(float(advantage), DECIMALS), one, two))
    examples = []
    for one, two in _balanced(sorted(blocks)):
        for asked_one, right, wrong in ((one, one, two), (two, two, one)):
            question = questions[asked_one]
            for sentence, label in ((right, "answer"), (wrong, "none")):
                examples.append(TextExample(f"{question.id}/{label}", question.question, sentences[sentence], label))
    return examples


def article_keys(question: QuestionExample) -> list[str]:
    """Return the keys that parts of a divided file must not share: articles, and sentences that several contain."""
    return [question.title, *(s.text for s in _sentences(question.context) if len(s.text) >= SHORTEST_SHARED)]


def answering_sentence(question: QuestionExample) -> str:
    """Return the sentence of the passage that contains the answer; empty if the answer crosses a sentence boundary."""
    start, end = question.answers[0].start, question.answers[0].start + len(question.answers[0].text)
    around = (s.text for s in _sentences(question.context) if s.start <= start and end <= s.end)
    return next(around, "")


@functools.lru_cache(maxsize=16)
def _sentences(context: str) -> list[Sentence]:
    return split_passage(context)


def _makes_block(one: QuestionExample, first: str, two: QuestionExample, second: str) -> bool:
    is_clear = one.answers[0].text not in second and two.answers[0].text not in first
    return bool(first and second) and first != second and is_clear


def _balanced(blocks: Sequence[tuple[float, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the blocks to take, from BLOCKS in ascending order of advantage."""
    taken: set[int] = set()
    total, number = 0.0, 0
    for advantage, one, two in blocks:
        if (total + advantage > 0 and number >= MIN_BLOCKS) or number == MAX_BLOCKS:
            return
        if not taken & {one, two}:
            taken |= {one, two}
            total, number = total + advantage, number + 1
            yield one, two


TASK = Task(
    name="korquad-qnli",
    title="KorQuAD-QNLI",
    family=Classification(labels=LABELS),
    files=korquad.TASK.files,
    num_examples={"train": 4 * MAX_BLOCKS, "dev": 1_360},
    sample_num_examples={"train": 112, "dev": 112},
    read=functools.partial(read_squad, id_column="id"),
    derive=make_pairs,
    takes_pairs=True,
    metrics=(accuracy,),
    chance=0.5,
    finetune=FinetuneConfig(epochs=5, batch_size=16, max_length=256),
    source="made by this suite out of Lim et al. 2019, KorQuAD 1.0, github korquad/korquad.github.io",
    licence=korquad.LICENCE,
    cluster=korquad.TASK.cluster,
    # A fifth of so few pairs is too small an evaluation part.
    substitute=Division("dev", {"train": 800, "dev": 552}, keys=article_keys, eval_share=0.25),
)
