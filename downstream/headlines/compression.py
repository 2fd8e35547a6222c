"""Headlines by deletion: of a sentence of the lead, the words that an editor would keep.

A small network reads the bundled encoder's vector of each unit (`downstream.headlines.units`), those of its neighbours
and of the sentence, its tags and its place, and gives two probabilities: that a headline keeps the unit, and that it
keeps the particle or light verb at its end. A second one says which kept unit is likely to follow which
(`downstream.headlines.transitions`). Of every length the subset of units is found that is worth most by both; among
lengths and sentences the expected F1 with an editor's headline decides, and again the transitions. Every word of the
result is one of the sentence, in its order.

Sources: Filippova and Altun 2013 (headlines as training data for deletion); Ye et al. 2012 (maximizing expected F1).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
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
from downstream.encoders.hub import bundled_or_folder
from downstream.headlines.settings import read_facts
from downstream.headlines.transitions import Floats, Transitions
from downstream.headlines.units import Unit, headline_of, units_of
from downstream.runtimes.graph import Forward, build_graph, open_session
from downstream.runtimes.plain_bert import PlainTokenizer
from downstream.runtimes.weights import EncoderWeights

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
FLUENCY = 0.1
"""Weight of the mean log-probability of transitions when candidates are compared; chosen on `dev`."""
SHORTEST, LONGEST = 4, 24
"""Morphemes of a headline."""
LARGEST_OVERLAP = 0.7
"""Jaccard index of the words of two candidates for the same article."""
NEEDED = 100.0
"""Worth of a unit without which a headline would state the opposite."""
PREDICATE = 2
"""Units at the end of a sentence that hold its predicate."""
WEIGHTS_FILE = "compressor.safetensors"
RETRAIN = "train it again: python -m downstream.headline train PAIRS… --out DIR"


@dataclass(frozen=True)
class Read:
    """A sentence of an article, in units."""

    units: tuple[Unit, ...]
    features: Floats
    """(n, F)."""
    num_own: int
    """Columns, the first ones, that are of the unit itself; the others are of its neighbours and the sentence."""

    @property
    def own(self) -> Floats:
        """The features of the units themselves."""
        return self.features[:, : self.num_own]


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
        if not kept:
            return Read((), np.zeros((0, 0), np.float32), 0)
        rows = np.array([_tag_and_place_features(kept, k, place, counts) for k in range(len(kept))])
        columns = [vectors, rows, around[:-2], around[2:], np.repeat(sentence[None], len(kept), 0)]
        features = np.concatenate(columns, axis=1, dtype=np.float32)
        return Read(tuple(kept), features, vectors.shape[1] + rows.shape[1])

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

    def probabilities(self, features: Floats) -> Floats:
        """Return the probabilities of keeping units and tails, (n, 2)."""
        hidden = np.maximum(features @ self.hidden + self.hidden_bias, 0)
        return np.asarray(1 / (1 + np.exp(-(hidden @ self.output + self.output_bias))), np.float32)


@dataclass(frozen=True)
class Weights:
    """What training fits."""

    network: Network
    transitions: Transitions

    @classmethod
    def load(cls, path: Path) -> "Weights":
        """Read what `save` wrote.

        Raises:
            CheckpointError: it is missing, damaged, or of another release.
        """
        arrays = {name: array.astype(np.float32) for name, array in read_arrays(path, is_required=True).items()}
        try:
            network = Network(*(arrays[field.name] for field in fields(Network)))
            transitions = Transitions(*(arrays[field.name] for field in fields(Transitions)))
        except KeyError as error:
            raise CheckpointError(path, f"has no {error}: it is of another release", RETRAIN) from error
        return cls(network, transitions)

    def save(self, path: Path) -> None:
        """Write them in half precision."""
        arrays = vars(self.network) | vars(self.transitions)
        write_arrays(path, {name: array.astype(np.float16) for name, array in arrays.items()})


@dataclass(frozen=True)
class Compressor:
    """Writes headlines by deletion; not for several threads at a time."""

    reader: UnitReader
    weights: Weights

    @classmethod
    def load(cls, folder: Path | None = None) -> "Compressor":
        """Load what `python -m downstream.headline train` saved, by default what comes with the package.

        Raises:
            CheckpointError: it is missing or damaged, or its encoder has changed.
        """
        folder = folder or package_path("downstream", "headlines", "compressor")
        facts = read_facts(folder)
        encoder = bundled_or_folder(str(facts.get("encoder", "")), "encoder")
        if ModelFolder(encoder).digest() != facts.get("encoder_sha256"):
            raise CheckpointError(folder, f"was trained on another encoder than {encoder}", RETRAIN)
        return cls(UnitReader.load(encoder), Weights.load(folder / WEIGHTS_FILE))

    def compress(self, article: str, count: int) -> list[Compressed]:
        """Return at most COUNT headlines of an article, the best first; each has words that the others lack."""
        found: list[tuple[int, Subset]] = []
        reads = self.reader.read(article)
        scores = [self.weights.network.probabilities(read.features) for read in reads]
        for number, read in enumerate(reads):
            follows = self.weights.transitions.log_probabilities(read.own)
            found += [(number, each) for each in subsets(read.units, scores[number][:, 0], follows)]
        chosen: list[Compressed] = []
        words: list[set[str]] = []
        for number, each in sorted(found, key=lambda candidate: -candidate[1].worth):
            with_tail = [bool(scores[number][k, 1] > 0.5) for k in each.kept]
            text = headline_of(reads[number].units, each.kept, with_tail)
            own = set(text.replace(",", "").split())
            if text and all(len(own & other) <= LARGEST_OVERLAP * len(own | other) for other in words):
                chosen.append(Compressed(text, each.expected_f1))
                words.append(own)
            if len(chosen) == count:
                break
        return chosen


@dataclass(frozen=True)
class Subset:
    """Units that are kept."""

    kept: list[int]
    expected_f1: float
    """With an editor's headline, over morphemes, in (0, 1]."""
    worth: float
    """By which subsets of several lengths are compared."""


def subsets(units: Sequence[Unit], keeps: Floats, follows: Floats) -> list[Subset]:
    """Return for each length in morphemes the best units to keep.

    Dynamic programming over the unit that is kept last and the length. A subset is worth the expected number of
    morphemes that an editor would keep, too, and the log-probabilities of its transitions. A unit that needs the one
    before it is kept with it alone, a negation at the end of the sentence is always kept, and nothing is kept twice.

    Args:
        units: of a sentence.
        keeps: their probabilities, (n,).
        follows: log-probabilities of transitions, (n + 2, n + 2); see `Transitions.log_probabilities`.
    """
    sizes = [max(1, unit.num_stem) for unit in units]
    needed = {k for k in range(len(units))[-PREDICATE:] if units[k].is_negated}
    best = np.full((len(units) + 1, LONGEST + 1), -np.inf)  # by the last row, 0 being the start, and length
    best[0, 0] = 0.0
    came_from = np.zeros(best.shape, np.intp)
    for k, (unit, size) in enumerate(zip(units, sizes, strict=True), start=1):
        if size <= LONGEST:
            first = k - 1 if unit.needs_previous else 0
            reached = best[first:k, : LONGEST + 1 - size] + follows[first:k, k, None]
            came_from[k, size:] = first + reached.argmax(axis=0)
            best[k, size:] = reached.max(axis=0) + float(keeps[k - 1]) * size + NEEDED * (k - 1 in needed)
    can_end = np.array([False, *(unit.can_end for unit in units)])
    ends = np.where(can_end[:, None], best + follows[:-1, -1:], -np.inf)
    found: list[Subset] = []
    for length in range(SHORTEST, LONGEST + 1):
        last = int(ends[:, length].argmax())
        if ends[last, length] > -np.inf:
            kept = _without_repetition(units, _traced(came_from, sizes, last, length))
            if needed <= set(kept):
                found.append(_subset(kept, sizes, keeps, follows))
    return found


def _traced(came_from: NDArray[np.intp], sizes: Sequence[int], last: int, length: int) -> list[int]:
    """Follow the path back from the row LAST to the start."""
    kept: list[int] = []
    while last:
        kept.append(last - 1)
        last, length = int(came_from[last, length]), length - sizes[last - 1]
    return kept[::-1]


def _subset(kept: list[int], sizes: Sequence[int], keeps: Floats, follows: Floats) -> Subset:
    common = sum(float(keeps[k]) * sizes[k] for k in kept)
    f1 = 2 * common / (sum(sizes[k] for k in kept) + EDITORS_LENGTH)
    rows = [0, *(k + 1 for k in kept), len(follows) - 1]
    return Subset(kept, f1, f1 + FLUENCY * float(np.mean([follows[a, b] for a, b in pairwise(rows)])))


def _without_repetition(units: Sequence[Unit], indices: Sequence[int]) -> list[int]:
    """Return the first unit of every stem."""
    return sorted({units[k].stem: k for k in reversed(indices)}.values())
