"""How Korean typing, spacing and style change a score: noise on evaluation examples, at fixed noise levels.

    model, tokenizer, task = load_finetuned(folder)
    predictor = partial(predict, model, tokenizer, task.family, max_length=128)
    robustness(task, split.examples, predictor)

An entry of `NOISES` finds the *eligible positions* of a text (the gap between two eojeol, a syllable, the ending of a
sentence) and alters some of them. Every position has a number in [0, 1), computed from seed, noise, example id, field
and position alone; it is altered if that number is below the noise level:

* the level is the expected share of eligible positions that are altered: 0 alters none, 1 all of them;
* what is altered at a level is altered at every higher level, so that curves over levels are paired;
* the order of the examples, the process and the versions of libraries do not matter. (Only which endings are eligible,
  and their replacements, depend on the version of the morphological analyser and its model.)

Labels never change. Tasks with tags on characters therefore get only the noises that join and split eojeol. A question
is noised and its context is not: noise inside an answer would change the gold, and noise around it would give the
answer away as the one clean span. Official offsets and metrics hold unchanged.

Positions are those of composed text (NFC), which is what tasks read. Only `nfd` gives decomposed text: what a model
makes of input that is not normalized before it.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from corpora.foundation.config import Config
from downstream.families.dependency import Dependency
from downstream.families.dialogue_state import DialogueState
from downstream.families.retrieval import Retrieval
from downstream.families.tagging import Tagging
from downstream.metrics import BOOTSTRAP_ROUNDS, FloatArray, Metric, bootstrap_ci95
from downstream.summaries.family import SentenceChoice
from downstream.task import Prediction, QuestionExample, Task, TextExample
from eval.measures.endings import ending_positions, swap_endings
from eval.measures.keyboard import mistype_syllables, syllable_positions

ExampleT = TypeVar("ExampleT", TextExample, QuestionExample)
Predict: TypeAlias = Callable[[Sequence[Any]], Sequence[Prediction]]
"""N examples → N predictions, in order."""

CLEAN = "clean"
MAX_EXAMPLES = 2000
"""Examples that are scored per condition: the standard error of an accuracy is 1.1 points at most."""


@dataclass(frozen=True)
class Noise:
    """A kind of noise: its eligible positions, and how it alters them."""

    name: str
    """Key in results."""
    title: str
    """Name in tables."""
    description: str
    """What it does, for readers of tables."""
    unit: str
    """What the level is a share of, for readers of tables."""
    rates: tuple[float, ...]
    """Noise levels at which models are compared."""
    positions: Callable[[str], Sequence[int]]
    """Text → code-point offsets of its eligible positions, ascending."""
    alter: Callable[[str, Mapping[int, float]], str]
    """Text, position → number in [0, 1) that chooses among alternatives → text altered at these positions."""
    fields: tuple[str, ...] = ("text", "pair", "question")
    """Fields of an example that are noised, if it has them."""
    has_one_choice: bool = False
    """Whether all positions of an example share the number that chooses."""
    keeps_characters: bool = False
    """Whether it changes only blanks, so that tags on characters stay valid; tagging tasks skip other noises."""


def apply(noise: Noise, example: ExampleT, rate: float, seed: int) -> ExampleT:
    """Return EXAMPLE with noise in its texts; id, label, context and answers are the same.

    Args:
        noise: entry of `NOISES`.
        example: composed text (NFC).
        rate: noise level; expected share of eligible positions to alter, in [0, 1].
        seed: selects the positions, together with the example's id.

    Raises:
        ValueError: the rate is outside [0, 1].
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"{noise.name}: rate {rate} is outside [0, 1]")
    noised: dict[str, Any] = {}
    for name in noise.fields:
        text = getattr(example, name, None)
        if text:
            struck = _strike(noise, text, rate, (seed, noise.name, example.id), name)
            noised[name] = noise.alter(text, struck) if struck else text
    return replace(example, **noised)


def _strike(noise: Noise, text: str, rate: float, key: tuple[object, ...], field: str) -> dict[int, float]:
    """Return the positions of a field to alter, each with the number that chooses among alternatives."""
    positions = noise.positions(text)
    where = _uniform(len(positions), *key, field, "where")
    if noise.has_one_choice:
        what = np.repeat(_uniform(1, *key, "what"), len(positions))
    else:
        what = _uniform(len(positions), *key, field, "what")
    return {
        position: float(choice) for position, draw, choice in zip(positions, where, what, strict=True) if draw < rate
    }


def _uniform(count: int, *key: object) -> FloatArray:
    """Return COUNT numbers in [0, 1), computed from KEY alone; a shorter list is the beginning of a longer one."""
    digest = hashlib.shake_256(json.dumps(key).encode()).digest(8 * count)
    return np.asarray((np.frombuffer(digest, dtype=">u8") >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


# --- spaces ---------------------------------------------------------------------------------------------------------

_GAP = re.compile(r"(?<=\S) +(?=\S)")
_INSIDE_EOJEOL = re.compile("(?<=[가-힣])(?=[가-힣])")


def _starts(pattern: re.Pattern[str]) -> Callable[[str], list[int]]:
    return lambda text: [match.start() for match in pattern.finditer(text)]


def _substitute(pattern: re.Pattern[str], new: str) -> Callable[[str, Mapping[int, float]], str]:
    return lambda text, struck: pattern.sub(lambda m: new if m.start() in struck else m.group(), text)


# --- normalization --------------------------------------------------------------------------------------------------


def _whole_text(text: str) -> list[int]:
    return [] if unicodedata.is_normalized("NFD", text) else [0]


def _decompose(text: str, _struck: Mapping[int, float]) -> str:
    return unicodedata.normalize("NFD", text)


# --- the registry ---------------------------------------------------------------------------------------------------

_KINDS = (
    Noise(
        name="missing-spaces",
        title="띄어쓰기 누락",
        description="어절 사이의 빈칸을 지운다.",
        unit="어절 사이",
        rates=(0.3, 1.0),
        positions=_starts(_GAP),
        alter=_substitute(_GAP, ""),
        keeps_characters=True,
    ),
    Noise(
        name="extra-spaces",
        title="띄어쓰기 과잉",
        description="어절 안의 두 음절 사이에 빈칸을 넣는다.",
        unit="어절 안의 음절 사이",
        rates=(0.1, 0.3),
        positions=_starts(_INSIDE_EOJEOL),
        alter=_substitute(_INSIDE_EOJEOL, " "),
        keeps_characters=True,
    ),
    Noise(
        name="jamo-typos",
        title="자모 오타",
        description="두벌식 자판에서 이웃한 글쇠를 누르거나, 글쇠를 빠뜨리거나, 두 번 누르거나, 앞뒤를 바꾸어 누른다.",
        unit="음절",
        rates=(0.03, 0.1),
        positions=syllable_positions,
        alter=mistype_syllables,
    ),
    Noise(
        name="nfd",
        title="NFD 입력",
        description="글 전체의 음절을 자모로 분해한다(유니코드 NFD). macOS의 파일 이름과 일부 수집기가 이렇게 쓴다.",
        unit="글",
        rates=(1.0,),
        positions=_whole_text,
        alter=_decompose,
    ),
    Noise(
        name="endings",
        title="종결어미 교체",
        description="문장 끝을 합쇼체·해요체·반말·해라체·음슴체 가운데 다른 말씨로 바꾼다. 확실한 문장만 바꾼다.",
        unit="바꿀 수 있는 문장 끝",
        rates=(1.0,),
        positions=ending_positions,
        alter=swap_endings,
        has_one_choice=True,
    ),
)
NOISES: Mapping[str, Noise] = {kind.name: kind for kind in _KINDS}


# --- scores ---------------------------------------------------------------------------------------------------------


class Condition(Config):
    """A model's scores under one noise at one level."""

    noise: str
    """Key of `NOISES`, or `clean`."""
    rate: float
    """Noise level."""
    altered: list[bool]
    """Per example, whether the noise changed it."""
    metrics: dict[str, float | None]
    """Metric key → fraction; None where the metric is undefined for these predictions."""
    columns: dict[str, list[list[float | None]]]
    """Metric key → its per-example numbers, in the order of `Robustness.ids`."""

    @property
    def num_altered(self) -> int:
        """Examples that the noise changed."""
        return sum(self.altered)

    def metric_columns(self, key: str) -> FloatArray:
        """Return the (N, K) per-example numbers of a metric; NaN where it leaves an example out."""
        return np.array([[np.nan if x is None else x for x in row] for row in self.columns[key]], dtype=np.float64)


class Robustness(Config):
    """A model's scores on the same examples, clean and under every noise."""

    task: str
    seed: int
    """Of the sample and of the noise."""
    ids: list[str]
    """The examples that were scored."""
    conditions: list[Condition]
    """The clean one first."""


def sample(examples: Sequence[ExampleT], max_examples: int, seed: int) -> list[ExampleT]:
    """Draw at most MAX_EXAMPLES by seed and id alone; samples are nested."""
    return sorted(examples, key=lambda example: float(_uniform(1, seed, "sample", example.id)[0]))[:max_examples]


def can_be_noised(task: Task) -> bool:
    """Whether the texts of a task can be altered: not if their sentences or eojeols, or other texts, are the answer."""
    return not isinstance(task.family, SentenceChoice | Dependency | DialogueState | Retrieval)


def _applicable(task: Task, noises: Sequence[Noise]) -> list[Noise]:
    """Return the noises that leave the units of a task as they are."""
    return [noise for noise in noises if noise.keeps_characters or not isinstance(task.family, Tagging)]


def num_conditions(task: Task) -> int:
    """Return how often `robustness` predicts the examples of a task: once clean, and at each level of each noise."""
    return 1 + sum(len(noise.rates) for noise in _applicable(task, _KINDS))


def robustness(
    task: Task,
    examples: Sequence[Any],
    predict: Predict,
    *,
    noises: Sequence[Noise] = _KINDS,
    max_examples: int = MAX_EXAMPLES,
    seed: int = 0,
) -> Robustness:
    """Score a model clean and under noise on the same sample of a task's examples: every drop is paired.

    Args:
        task: says how predictions are scored.
        examples: of its evaluation split.
        predict: the trained model; examples that a noise does not change keep their clean prediction.
        noises: each is applied at its own levels; on a tagging task only those that keep characters.
        max_examples: size of the sample.
        seed: of sample and noise; the same for all models that are compared.

    Raises:
        ValueError: there are no examples.
    """
    clean = sample(examples, max_examples, seed)
    if not clean:
        raise ValueError(f"{task.name}: no examples to score")
    clean_predictions = list(predict(clean))
    conditions = [_score(task, clean, clean_predictions, CLEAN, 0.0, [False] * len(clean))]
    for noise in _applicable(task, noises):
        for rate in noise.rates:
            noisy = [apply(noise, example, rate, seed) for example in clean]
            altered = [new != old for new, old in zip(noisy, clean, strict=True)]
            changed = [example for example, is_altered in zip(noisy, altered, strict=True) if is_altered]
            answers = iter(predict(changed) if changed else [])
            predictions = [
                next(answers) if is_altered else kept
                for is_altered, kept in zip(altered, clean_predictions, strict=True)
            ]
            conditions.append(_score(task, clean, predictions, noise.name, rate, altered))
    return Robustness(task=task.name, seed=seed, ids=[example.id for example in clean], conditions=conditions)


def _score(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], noise: str, rate: float, altered: list[bool]
) -> Condition:
    golds = [example.gold for example in examples]
    columns = {metric.key: metric.columns(predictions, golds) for metric in task.metrics}
    values = {metric.key: metric.fold(columns[metric.key]) for metric in task.metrics}
    return Condition(
        noise=noise,
        rate=rate,
        altered=altered,
        metrics={key: None if np.isnan(value) else value for key, value in values.items()},
        columns={
            key: [[None if np.isnan(x) else float(x) for x in row] for row in array] for key, array in columns.items()
        },
    )


def paired_drop(
    metric: Metric,
    clean: Sequence[FloatArray],
    noisy: Sequence[FloatArray],
    *,
    seed: int = 0,
    rounds: int = BOOTSTRAP_ROUNDS,
    clusters: Sequence[int] | None = None,
) -> tuple[float, tuple[float, float]] | None:
    """Return the drop of a metric from clean to noisy input, averaged over seeds, with its 95 % bootstrap interval.

    Every resample draws the same examples for both, so that the difficulty of an example cancels out.

    Args:
        metric: what is aggregated.
        clean: one float (N, K) array per seed of the model.
        noisy: the same examples under noise.
        seed: of the resampling.
        rounds: resamples.
        clusters: number of each example's cluster; default: every example is drawn by itself.

    Returns:
        Drop and interval as fractions, or None where the metric is undefined.
    """
    width = clean[0].shape[1]
    difference = Metric(
        metric.key,
        metric.title,
        metric.columns,
        lambda rows, weights: metric.aggregate(rows[:, :width], weights) - metric.aggregate(rows[:, width:], weights),
    )
    both = [np.concatenate(pair, axis=1) for pair in zip(clean, noisy, strict=True)]
    interval = bootstrap_ci95(difference, both, seed=seed, rounds=rounds, clusters=clusters)
    return None if interval is None else (float(np.mean([difference.fold(array) for array in both])), interval)
