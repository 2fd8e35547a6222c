"""KorQuAD as sentence pairs: does this sentence of the passage hold the answer? After QNLI (Wang et al. 2019, GLUE).

Made out of KorQuAD's files when they are read: no derivative of them is passed on.

In KorQuAD the sentence with the answer repeats most of its question: 85 times in 100 it shares more 2-grams with it
than any other does. So that overlap does not solve the task, only *blocks* of two questions of a passage are kept,
whose answers stand in different sentences:

| | the sentence that answers the first | that answers the second |
| --- | --- | --- |
| first question | answer | none |
| second question | none | answer |

So every question and every sentence is right once and wrong once, and neither alone says anything, its length included.
A block's *advantage* is how much more overlap the two right pairs have than the two wrong ones. Blocks are taken in the
order of their advantage, from the least, each question once, as long as the advantages do not sum up to more than
nothing: on average over the task right pairs overlap as much as wrong ones. Sentences with the other question's answer
in them make no block.
"""

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from corpora.sentences import Sentence, split_article
from downstream.families.classification import Classification
from downstream.metrics import accuracy
from downstream.readers import read_squad
from downstream.substitutes import DECIMALS, Division, Overlap
from downstream.task import FinetuneConfig, QuestionExample, Task, TextExample
from downstream.tasks import korquad

LABELS = ("none", "answer")
MIN_BLOCKS, MAX_BLOCKS = 28, 2_000
"""Of a split. The least, because the embedded sample has too few questions for the rule; the most, so that the size can
be stated where the file is not at hand."""
SHORTEST_SHARED = 20
"""Characters of a sentence by which two articles are told to be related."""
WEIGHTS = (1.4, 0.1, 9.7, 5.5, -3.9, -3.5)
"""Of the shares that `Overlap` sums up: rounded from a logistic regression that tells right from wrong pairs of a block
in the training part of `korquad-qnli-devsplit`. They measure what letters could tell; nothing is learnt here."""


def make_pairs(_split: str, questions: Sequence[QuestionExample]) -> list[TextExample]:
    """Return the pairs of question and sentence, four a block; `text` is the question."""
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
    """Return what must not stand in both parts of a divided file: articles, and sentences that some of them share."""
    return [question.title, *(s.text for s in _sentences(question.context) if len(s.text) >= SHORTEST_SHARED)]


def answering_sentence(question: QuestionExample) -> str:
    """Return the sentence of the passage that the answer stands in; nothing if it runs over a sentence's end."""
    start, end = question.answers[0].start, question.answers[0].start + len(question.answers[0].text)
    around = (s.text for s in _sentences(question.context) if s.start <= start and end <= s.end)
    return next(around, "")


@functools.lru_cache(maxsize=16)
def _sentences(context: str) -> list[Sentence]:
    return split_article(context)


def _makes_block(one: QuestionExample, first: str, two: QuestionExample, second: str) -> bool:
    is_clear = one.answers[0].text not in second and two.answers[0].text not in first
    return bool(first and second) and first != second and is_clear


def _balanced(blocks: Sequence[tuple[float, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the blocks to be taken, of all that there are by advantage."""
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
    # A fifth of so few pairs would say little.
    substitute=Division("dev", {"train": 800, "dev": 552}, keys=article_keys, eval_share=0.25),
)
