"""Substitute and derived tasks: divisions of official files, and what tasks made out of other texts share.

Where an official file cannot be obtained, a task on a division of another one, or scored on another split, takes its
place under its own name. A derived task must not be solvable by surface overlap or length: its generator measures how
similar texts are, and chooses among them so that neither predicts the answer.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from downstream.task import FinetuneConfig, Task, TextExample

DIVISION_SALT = "pressbert division 1"
DERIVATION_SALT = "pressbert derivation 1"
SPLIT_TITLES: Mapping[str, str] = {"train": "학습셋", "dev": "개발셋", "test": "평가셋"}
GRAMS = (1, 2, 3)
DECIMALS = 6
"""Sums are rounded to these: further decimals differ between machines."""


def shared_texts(example: TextExample) -> list[str]:
    """Return the keys that training and evaluation part must not share: the texts without blanks."""
    texts = [example.text] if example.pair is None else [example.text, example.pair]
    return ["".join(text.split()) for text in texts]


@dataclass(frozen=True)
class Division:
    """Substitute: one official file in two parts without shared keys, where the task's other file is not available.

    Examples with a common key form a group, transitively. A group goes to the evaluation part if the SHA-256 of
    `DIVISION_SALT`, a line feed and its first key in code point order is below `eval_share`; the first 8 bytes are read
    as a fraction of one. So the division does not depend on the file's order or a random generator, and a text lies in
    the same part in every task that divides by texts with the same share.
    """

    split: str
    """Official split whose file is divided."""
    num_examples: Mapping[str, int]
    """Number of examples of the parts `train` and `dev`."""
    keys: Callable[[Any], Iterable[str]] = shared_texts
    """Example → keys that it may not share with the other part."""
    eval_share: float = 0.2
    """Expected share of groups in the part `dev`."""
    finetune: FinetuneConfig | None = None
    """Settings for fewer examples, where they differ from the official task's."""

    def substitute_task(self, task: Task) -> Task:
        """Return TASK on its divided file, e.g. `klue-nli-devsplit`."""
        return replace(
            task,
            name=f"{task.name}-{self.split}split",
            title=f"{task.title} ({SPLIT_TITLES[self.split]} 분할)",
            files={"train": task.files[self.split], "dev": task.files[self.split]},
            split_files={},
            num_examples=self.num_examples,
            finetune=self.finetune or task.finetune,
            source=f"{task.source}; its {self.split} file in two parts, not the official splits",
            train_split="train",
            eval_split="dev",
            sample_num_examples={},
            base=task.name,
            substitute=None,
            division=self,
        )

    def parts(self, examples: Sequence[Any]) -> dict[str, list[Any]]:
        """Return the examples of the parts `train` and `dev`, each in file order."""
        parents = list(range(len(examples)))

        def group(k: int) -> int:
            while parents[k] != k:
                parents[k] = parents[parents[k]]
                k = parents[k]
            return k

        owners: dict[str, int] = {}
        for k, example in enumerate(examples):
            for key in self.keys(example):
                parents[group(k)] = group(owners.setdefault(key, k))
        first_keys: dict[int, str] = {}
        for key, k in owners.items():
            first_keys[group(k)] = min(key, first_keys.get(group(k), key))
        parts: dict[str, list[Any]] = {"train": [], "dev": []}
        for k, example in enumerate(examples):
            digest = hashlib.sha256(f"{DIVISION_SALT}\n{first_keys[group(k)]}".encode()).digest()
            parts["dev" if int.from_bytes(digest[:8]) < self.eval_share * 2**64 else "train"].append(example)
        return parts


@dataclass(frozen=True)
class OtherSplit:
    """Substitute: the official training file, scored on another split where the reported one is not available."""

    split: str
    """Official split that is scored."""

    def substitute_task(self, task: Task) -> Task:
        """Return TASK scored on the other split, e.g. `korsts-dev`."""
        return replace(
            task,
            name=f"{task.name}-{self.split}",
            title=f"{task.title} ({SPLIT_TITLES[self.split]} 평가)",
            source=f"{task.source}; scored on its {self.split} split, not on {task.eval_split}",
            eval_split=self.split,
            sample_num_examples={},
            base=task.name,
            substitute=None,
        )


class Overlap:
    """Surface overlap of texts with others, by character n-grams of letters and digits.

    For n from 1 to 3: the share of a text's n-grams that the other contains, plain and weighted by IDF; the result is a
    weighted sum of the six shares.
    """

    def __init__(
        self, texts: Sequence[str], others: Sequence[str], weights: Sequence[float] = (1, 1, 1, 1, 1, 1)
    ) -> None:
        """Count n-grams; IDF is computed over OTHERS."""
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer

        letters = ["".join(filter(str.isalnum, text)) for text in (*texts, *others)]
        of_texts, of_others = [], []
        for k, n in enumerate(GRAMS):
            counter = CountVectorizer(
                analyzer="char", ngram_range=(n, n), lowercase=False, binary=True, dtype=np.float64
            )
            table = counter.fit_transform(letters)
            own, theirs = table[: len(texts)], table[len(texts) :]
            idf = np.log((len(others) + 1) / (np.asarray(theirs.sum(axis=0)).ravel() + 1))
            of_texts.append(weights[2 * k] * _shares(own) + weights[2 * k + 1] * _shares(own.multiply(idf)))
            of_others.append(theirs)
        self._texts, self._others = sparse.hstack(of_texts).tocsr(), sparse.hstack(of_others).tocsr()

    def __call__(self, texts: Sequence[int], others: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the overlap of each of A texts with each of B others, float (A, B).

        Args:
            texts: indices of the texts.
            others: indices of the others.
        """
        table: npt.NDArray[np.float64] = (self._texts[texts] @ self._others[others].T).toarray()
        return np.round(table, DECIMALS)


def _shares(table: Any) -> Any:
    """Return the rows of a sparse table divided by their sums."""
    from scipy import sparse

    sums = np.maximum(np.asarray(table.sum(axis=1)).ravel(), 1e-9)
    return sparse.diags_array(1 / sums) @ table.tocsr()


def draw(purpose: str, number: int) -> int:
    """Return a pseudo-random number below NUMBER, determined by PURPOSE alone, the same on every machine."""
    digest = hashlib.sha256(f"{DERIVATION_SALT}\n{purpose}".encode()).digest()
    return int.from_bytes(digest[:8]) * number >> 64
