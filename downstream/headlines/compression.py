"""Headlines by deletion: of a sentence of the lead, the words that an editor would keep.

A small network reads the bundled encoder's vector of each unit (`downstream.headlines.units`), those of its neighbours
and of the sentence, its tags and its place, and gives two probabilities: that a headline keeps the unit, and that it
keeps the particle or light verb at its end. The subset that is kept maximizes the expected F1 with an editor's
headline. Every word of the result is one of the sentence, in its order.

Sources: Filippova and Altun 2013 (headlines as training data for deletion); Ye et al. 2012 (maximizing expected F1).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.characters import nfc
from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import package_path
from corpora.foundation.machine import num_threads
from corpora.sentences import DATELINE, LONGEST_OPENING, is_litany, split_article
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import bundled
from downstream.headlines.settings import read_facts
from downstream.headlines.units import Unit, headline_of, units_of
from downstream.runtimes.graph import Forward, build_graph, open_session
from downstream.runtimes.plain_bert import PlainTokenizer
from downstream.runtimes.weights import EncoderWeights

Floats = NDArray[np.float32]

LEAD = 3
"""Sentences that are compressed."""
LONGEST_READ = 4_000
"""Characters of an article that are read."""
TAGS = (
    *("NNG", "NNP", "NNB", "NR", "NP", "VV", "VA", "VX", "VCP", "VCN", "MM", "MAG", "MAJ", "IC"),
    *("JKS", "JKC", "JKG", "JKO", "JKB", "JKV", "JKQ", "JX", "JC", "EP", "EF", "EC", "ETN", "ETM"),
    *("XPN", "XSN", "XSV", "XSA", "XSM", "XR", "SL", "SH", "SN", "W_SERIAL"),
)
"""Kiwi's tags."""
BORDER = re.compile(r"\s*[□○◦❍△▲◇◆■●▶※]\s*")
"""Signs in front of the items of a press release, each of which is a sentence."""
ATTACHMENT = re.compile(r"\.(?:jpe?g|png|gif|bmp|hwpx?|pdf|docx?|xlsx?|pptx?|zip)$", re.I)
"""What ends the name of a file, which is no sentence."""
EDITORS_LENGTH = 10.0
"""Morphemes of an editor's headline in the expected F1; chosen on the split `dev`."""
ADJACENCY = 0.1
"""Worth of keeping two neighbours, in morphemes; chosen on `dev`."""
SHORTEST, LONGEST = 4, 24
"""Morphemes of a headline."""
LARGEST_OVERLAP = 0.7
"""Jaccard index of the words of two candidates for the same article."""
NEEDED = 100.0
"""Worth of a unit without which a headline would state the opposite."""
PREDICATE = 2
"""Units at the end of a sentence that hold its predicate."""
WEIGHTS_FILE = "compressor.safetensors"
BUNDLED = "bundled"


@dataclass(frozen=True)
class Read:
    """A sentence of an article, in units."""

    units: tuple[Unit, ...]
    features: Floats
    """(n, F)."""


@dataclass(frozen=True)
class UnitReader:
    """Reads the sentences of a lead; not for several threads at a time."""

    run: Forward
    tokenizer: PlainTokenizer

    @classmethod
    def load(cls, folder: Path) -> "UnitReader":
        """Load a plain BERT.

        Raises:
            CheckpointError: it is none.
        """
        graph = build_graph(EncoderWeights.from_folder(folder), "states", ["input_ids", "attention_mask"])
        return cls(open_session(graph, threads=num_threads()), PlainTokenizer.load(folder))

    def read(self, article: str) -> list[Read]:
        """Return the first sentences of an article that have units."""
        text = nfc(article[:LONGEST_READ])
        lines = [sentence.text for sentence in split_article(BORDER.sub("\n", text))]
        sentences = [units_of(_without_dateline(line)) for line in lines if not ATTACHMENT.search(line)]
        counts = Counter(form for units in sentences for unit in units for form in unit.morphemes)
        found = [self._features(units, place, counts) for place, units in enumerate(sentences[:LEAD]) if units]
        return [read for read in found if read.units]

    def _features(self, units: Sequence[Unit], place: int, counts: Counter[str]) -> Read:
        vectors, sentence = self._vectors(units)
        kept = units[: len(vectors)]  # the encoder reads no more
        around = np.concatenate([sentence[None], vectors, sentence[None]])
        rows = [_tag_and_place_features(kept, k, place, counts) for k in range(len(kept))]
        columns = [vectors, around[:-2], around[2:], np.repeat(sentence[None], len(kept), 0), np.array(rows)]
        return Read(tuple(kept), np.concatenate(columns, axis=1, dtype=np.float32) if kept else np.zeros((0, 0), "f4"))

    def _vectors(self, units: Sequence[Unit]) -> tuple[Floats, Floats]:
        """Return the mean vector of the tokens of each unit, (n, D), and the vector of the sentence, (D,)."""
        cls, sep = self.tokenizer("")["input_ids"]
        tokens = self.tokenizer([unit.text for unit in units], add_special_tokens=False)["input_ids"]
        ends = np.cumsum([0, *map(len, tokens)])
        number = int(np.searchsorted(ends, self.tokenizer.model_max_length - 2, side="right")) - 1
        ids = np.array([[cls, *(id_ for row in tokens[:number] for id_ in row), sep]], dtype=np.int64)
        states = self.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        means = [
            states[1 + a : 1 + b].mean(0) if b > a else states[0] for a, b in pairwise(ends[: number + 1].tolist())
        ]
        return np.array(means, np.float32).reshape(number, states.shape[1]), states[0]


def _without_dateline(line: str) -> str:
    opening = line[:LONGEST_OPENING]
    found = None if is_litany(opening) else DATELINE.match(opening)
    return line[found.end() :] if found else line


def _tag_and_place_features(units: Sequence[Unit], k: int, place: int, counts: Counter[str]) -> list[float]:
    unit, tags = units[k], units[k].tags
    first, last = (tags[0], tags[-1]) if tags else ("", "")
    return [
        *(float(tag == first) for tag in TAGS),
        *(float(tag == last) for tag in TAGS),
        *(float(place == number) for number in range(LEAD)),
        k / max(1, len(units) - 1),
        math.log1p(k),
        math.log1p(len(units) - k),
        math.log1p(max((counts[form] for form in unit.morphemes), default=0)),
        len(unit.text) / 8,
        float(unit.stem != unit.text),
        len(units) / 20,
    ]


@dataclass(frozen=True)
class Compressed:
    """A headline and what is expected of it."""

    text: str
    expected_f1: float
    """With an editor's headline, over morphemes, in (0, 1]."""


@dataclass(frozen=True)
class Network:
    """Two layers: features → H hidden values → log-odds of keeping a unit, and of keeping its tail."""

    hidden: Floats
    """Weights (F, H)."""
    hidden_bias: Floats
    output: Floats
    """Weights (H, 2)."""
    output_bias: Floats

    @classmethod
    def load(cls, path: Path) -> "Network":
        """Read what `save` wrote.

        Raises:
            CheckpointError: it is missing or damaged.
        """
        arrays = read_arrays(path, is_required=True)
        return cls(**{name: array.astype(np.float32) for name, array in arrays.items()})

    def save(self, path: Path) -> None:
        """Write the weights in half precision."""
        write_arrays(path, {name: array.astype(np.float16) for name, array in vars(self).items()})

    def probabilities(self, features: Floats) -> Floats:
        """Return the probabilities of keeping units and tails, (n, 2)."""
        hidden = np.maximum(features @ self.hidden + self.hidden_bias, 0)
        return np.asarray(1 / (1 + np.exp(-(hidden @ self.output + self.output_bias))), np.float32)


@dataclass(frozen=True)
class Compressor:
    """Writes headlines by deletion; not for several threads at a time."""

    reader: UnitReader
    network: Network

    @classmethod
    def load(cls, folder: Path | None = None) -> "Compressor":
        """Load what `python -m downstream.headline train` saved, by default what comes with the package.

        Raises:
            CheckpointError: it is missing or damaged, or its encoder has changed.
        """
        folder = folder or package_path("downstream", "headlines", "compressor")
        facts = read_facts(folder)
        encoder = encoder_folder(str(facts.get("encoder", "")))
        if ModelFolder(encoder).digest() != facts.get("encoder_sha256"):
            fix = "train it again: python -m downstream.headline train PAIRS… --out DIR"
            raise CheckpointError(folder, f"was trained on another encoder than {encoder}", fix)
        return cls(UnitReader.load(encoder), Network.load(folder / WEIGHTS_FILE))

    def compress(self, article: str, count: int) -> list[Compressed]:
        """Return at most COUNT headlines of an article, the best first; each has words that the others lack."""
        found: list[tuple[float, int, list[int]]] = []
        reads = self.reader.read(article)
        scores = [self.network.probabilities(read.features) for read in reads]
        for number, read in enumerate(reads):
            found += [(f1, number, kept) for f1, kept in subsets(read.units, scores[number][:, 0])]
        chosen: list[Compressed] = []
        words: list[set[str]] = []
        for f1, number, kept in sorted(found, key=lambda candidate: -candidate[0]):
            text = headline_of(reads[number].units, kept, [bool(scores[number][k, 1] > 0.5) for k in kept])
            own = set(text.replace(",", "").split())
            if text and all(len(own & other) <= LARGEST_OVERLAP * len(own | other) for other in words):
                chosen.append(Compressed(text, f1))
                words.append(own)
            if len(chosen) == count:
                break
        return chosen


def encoder_folder(source: str) -> Path:
    """Return the folder of an encoder, `bundled` or a folder."""
    return bundled("encoder") if source == BUNDLED else Path(source)


def subsets(units: Sequence[Unit], keeps: Floats) -> list[tuple[float, list[int]]]:
    """Return for each length the best units to keep, with the F1 that is expected of them.

    Dynamic programming over units and morphemes. The worth of a subset is the expected number of morphemes that an
    editor would keep, too, and `ADJACENCY` for every two neighbours. A unit that needs the one before it is kept with
    it alone, a negation at the end of the sentence is always kept, and nothing is kept twice.

    Args:
        units: of a sentence.
        keeps: their probabilities, (n,).
    """
    sizes = [max(1, unit.num_stem) for unit in units]
    needed = {k for k in range(len(units))[-PREDICATE:] if units[k].is_negated}
    none = np.full(LONGEST + 1, -np.inf)
    left, kept = none.copy(), none  # best worth by length, by whether the last unit is kept
    left[0] = 0.0
    steps: list[_Step] = []
    for k, (unit, size) in enumerate(zip(units, sizes, strict=True)):
        from_left, from_kept = none if unit.needs_previous and k else left, kept + ADJACENCY
        worth = float(keeps[k]) * size + NEEDED * (k in needed)
        best = np.maximum(from_left, from_kept)[: max(0, LONGEST + 1 - size)] + worth
        with_unit = np.concatenate([none[: min(size, LONGEST + 1)], best])
        steps.append(_Step(kept > left, from_kept > from_left, with_unit if unit.can_end else none))
        left, kept = np.maximum(left, kept), with_unit
    ends = np.array([step.ends for step in steps])  # (n, LONGEST + 1)
    found: list[tuple[float, list[int]]] = []
    for length in range(SHORTEST, LONGEST + 1):
        last = int(ends[:, length].argmax())
        if ends[last, length] > -np.inf:
            indices = _without_repetition(units, _traced(steps, sizes, last, length))
            common = sum(float(keeps[k]) * sizes[k] for k in indices)
            if needed <= set(indices):
                found.append((2 * common / (sum(sizes[k] for k in indices) + EDITORS_LENGTH), indices))
    return found


@dataclass(frozen=True)
class _Step:
    """Of a unit and by length: where the best subsets come from, and their worth."""

    left_from_kept: NDArray[np.bool_]
    """Whether the one without this unit has the unit before."""
    kept_from_kept: NDArray[np.bool_]
    """Whether the one with this unit has the unit before."""
    ends: NDArray[np.float64]
    """Worth of those that end with this unit; -inf where none may."""


def _traced(steps: Sequence[_Step], sizes: Sequence[int], last: int, length: int) -> list[int]:
    """Follow the path back that ends with the unit LAST."""
    indices: list[int] = []
    is_kept = True
    for k in reversed(range(last + 1)):
        step = steps[k]
        if is_kept:
            indices.append(k)
            length -= sizes[k]
            is_kept = bool(step.kept_from_kept[length])
        else:
            is_kept = bool(step.left_from_kept[length])
    return indices[::-1]


def _without_repetition(units: Sequence[Unit], indices: Sequence[int]) -> list[int]:
    """Return the first unit of every stem."""
    return sorted({units[k].stem: k for k in reversed(indices)}.values())
