"""Measures and baselines of the benchmarks of clustering: time, pairs on one event, and pairs that must differ."""

import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.clustering import LETTERS
from apps.stories.articles import Article, clean_title
from apps.stories.clusters import default_embedder
from apps.stories.duplicates import letters_of
from apps.stories.keywords import kiwi
from apps.stories.space import CharNgrams, Embedder
from corpora.readers.decoding import read_text

Labels = NDArray[np.int64]

MAX_ENTITY, MAX_NUMBER = 20, 50
"""Maximum titles with a rare name and with a rare number."""
NUM_RANDOM_PAIRS = 1_000_000


def open_embedder(name: str | None) -> Embedder:
    """Open the measured embedder."""
    if name == LETTERS:
        return CharNgrams()
    if name is None:
        return default_embedder()
    from downstream.embed import Embedder as SentenceEmbedder

    return SentenceEmbedder.load(name)


def embedder_name(name: str | None) -> str:
    """Return what readers call the measured embedder."""
    if isinstance(open_embedder(name), CharNgrams):
        return "none, titles are compared by their letters"
    return f"`{Path(name).name}`" if name else "the bundled one"


def run_measured(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, resource.struct_rusage]:
    """Run a command; returns its output and resource usage."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, env=os.environ | environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        return output.read(), usage


def run_day(file: Path, model: str | None = None) -> dict[str, Any]:
    """Run `python -m apps.clustering` on a file with an empty cache.

    Returns:
        What the command prints as JSON, its time, memory and the size of each written file by suffix.
    """
    with tempfile.TemporaryDirectory(prefix="pressbert-benchmark-") as scratch:
        command = [sys.executable, "-m", "apps.clustering", str(file), "--out", scratch, "--json"]
        command += ["--model", model] if model else []
        started = time.perf_counter()
        output, usage = run_measured(command, {})
        elapsed_s = time.perf_counter() - started
        size = {path.suffix[1:]: path.stat().st_size for path in Path(scratch).glob("stories.*")}
    figures = {"wall_s": elapsed_s, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}
    return {**json.loads(output), **figures, "size_bytes": size}


class CachedEmbedder:
    """An embedder that computes each text once, so that settings are compared quickly."""

    def __init__(self, embedder: Embedder) -> None:
        """Wrap an embedder."""
        self.sha256 = embedder.sha256
        self._embedder = embedder
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        self._vectors.update(zip(missing, self._embedder.encode(missing), strict=True))
        return np.stack([self._vectors[text] for text in texts])


class Judge:
    """Automatic measures: pairs of titles that share rare words, and categories.

    Two titles are a *pair* if they share a rare name (a proper noun or Latin word of two letters or more, by Kiwi, in
    at most MAX_ENTITY titles) and a number (a run of digits, in at most MAX_NUMBER titles), and are not equal.
    """

    def __init__(self, articles: Sequence[Article]) -> None:
        """Find the pairs."""
        titles = [clean_title(article.title) for article in articles]
        tokens = kiwi().tokenize(titles)
        names = [{t.form for t in some if t.tag in {"NNP", "SL"} and len(t.form) > 1} for some in tokens]
        numbers = [set(re.findall(r"\d+(?:[.,]\d+)*", title)) for title in titles]
        name_counts, number_counts = (Counter(itertools.chain(*sets)) for sets in (names, numbers))
        holders: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, both in enumerate(zip(names, numbers, strict=True)):
            for name, number in itertools.product(*both):
                if name_counts[name] <= MAX_ENTITY and number_counts[number] <= MAX_NUMBER:
                    holders[name, number].append(index)
        pairs = {pair for some in holders.values() for pair in itertools.combinations(some, 2)}
        self.pairs = np.array(sorted(pair for pair in pairs if titles[pair[0]] != titles[pair[1]]))
        drawn = np.random.default_rng(0).integers(0, len(titles), (NUM_RANDOM_PAIRS, 2))
        self.random = drawn[drawn[:, 0] != drawn[:, 1]]
        self.categories = np.unique([article.category for article in articles], return_inverse=True)[1]

    def judge(self, labels: Labels) -> dict[str, float]:
        """Return the measures of a clustering; −1 is noise."""
        from sklearn.metrics import adjusted_mutual_info_score

        inside = labels >= 0
        together = [
            float((inside[some[:, 0]] & (labels[some[:, 0]] == labels[some[:, 1]])).mean())
            for some in (self.pairs, self.random)
        ]
        sizes = np.bincount(labels[inside]) if inside.any() else np.zeros(1)
        return {
            "num_stories": int((sizes > 0).sum()),
            "largest": int(sizes.max()),
            "noise": float(1 - inside.mean()),
            "pairs": together[0],
            "random": together[1],
            "ami": float(adjusted_mutual_info_score(self.categories[inside], labels[inside])),
            "ami_all": float(adjusted_mutual_info_score(self.categories, labels)),
        }


@dataclass(frozen=True)
class Baseline:
    """TF-IDF of the titles, as points for common algorithms."""

    texts: Sequence[str]
    of_article: Labels

    def points(self) -> NDArray[np.float64]:
        """Return LSA vectors of unit length of TF-IDF over white-space words."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize

        table = TfidfVectorizer(min_df=2).fit_transform(self.texts)
        rows: NDArray[np.float64] = normalize(TruncatedSVD(100, random_state=0).fit_transform(table))
        return rows

    def hdbscan(self, points: NDArray[np.float64]) -> Labels:
        """Cluster by HDBSCAN."""
        from sklearn.cluster import HDBSCAN

        found = HDBSCAN(min_cluster_size=5, min_samples=5, cluster_selection_method="leaf", copy=True).fit(points)
        return self._expand(found.labels_)

    def kmeans(self, points: NDArray[np.float64], number: int) -> Labels:
        """Cluster by k-means."""
        from sklearn.cluster import MiniBatchKMeans

        return self._expand(MiniBatchKMeans(number, random_state=0, n_init=3).fit(points).labels_)

    def _expand(self, labels: NDArray[np.integer]) -> Labels:
        expanded: Labels = np.where(self.of_article >= 0, labels[self.of_article], -1).astype(np.int64)
        return expanded


def brute_force(texts: Sequence[str], least: float) -> set[tuple[int, int]]:
    """Return all pairs whose sets of 5-letter shingles have a Jaccard index of at least LEAST, by brute force."""
    from scipy import sparse

    letters = [letters_of(text) for text in texts]
    sets = [{some[k : k + 5] for k in range(max(1, len(some) - 4))} for some in letters]
    columns = {shingle: number for number, shingle in enumerate(set().union(*sets))}
    rows = np.repeat(np.arange(len(texts)), [len(some) for some in sets])
    positions = [columns[shingle] for some in sets for shingle in some]
    table = sparse.csr_array((np.ones(len(rows), np.int32), (rows, positions)), shape=(len(texts), len(columns)))
    shared = sparse.triu(table @ table.T, 1).tocoo()
    sizes = np.array([len(some) for some in sets])
    is_near = shared.data >= least * (sizes[shared.row] + sizes[shared.col] - shared.data)
    return set(zip(shared.row[is_near].tolist(), shared.col[is_near].tolist(), strict=True))


def marked_names(data: Path) -> dict[str, list[str]]:
    """Return the names of people, organisations and places that KLUE-NER's annotators marked, by kind."""
    text = read_text(data / "klue" / "klue-ner-v1.1" / "klue-ner-v1.1_dev.tsv")
    marked = re.findall(r"<([가-힣A-Za-z]{2,8}):(PS|OG|LC)>", text)
    return {kind: sorted({name for name, other in marked if other == kind}) for kind in ("PS", "OG", "LC")}


NEGATED = (
    (re.compile(r"없(?=[다는이음을])"), "있"),
    (re.compile(r"있(?=[다는음을])"), "없"),
    (re.compile(r"(?<= )(?=[가-힣]{1,3}(?:는다|한다|했다|된다|왔다|간다))"), "안 "),
    (re.compile(r"(?<=[가-힣])(?<!지 )않(?=[다는았])"), ""),
    (re.compile(r"(?<= )(?:안|못) (?=[가-힣])"), ""),
    (re.compile(r"(?<![가-힣])비공개"), "공개"),
    (re.compile(r"(?<![가-힣비])공개(?= )"), "비공개"),
    (re.compile(r"(?<=[가-힣])했다(?![가-힣])"), "하지 않았다"),
    (re.compile(r"(?<=[가-힣])한다(?![가-힣])"), "하지 않는다"),
)


def minimal_pairs(
    titles: Sequence[str], entities: Mapping[str, Sequence[str]], count: int, seed: int
) -> list[tuple[str, str, str]]:
    """Make pairs of titles that differ in one number, one name or one negation.

    Names are those of KLUE-NER, so they are independent of the analyser that the guard uses.

    Returns:
        Kind, title and changed title; a title is used once for each kind.
    """
    draw = np.random.default_rng(seed)
    order = [titles[position] for position in draw.permutation(len(titles))]
    kind_of = {name: kind for kind, names in entities.items() for name in names}
    known = re.compile(r"(?<![가-힣A-Za-z])(" + "|".join(sorted(map(re.escape, kind_of), key=len, reverse=True)) + ")")
    wanted = {"number": count - 2 * (count // 3), "name": count // 3, "negation": count // 3}
    made: list[tuple[str, str, str]] = []

    def change_number(title: str) -> str:
        found = list(re.finditer(r"\d+", title))
        if not found:
            return title
        position = found[draw.integers(len(found))]
        digit = position.start() + int(draw.integers(len(position[0])))
        other = (int(title[digit]) + int(draw.integers(1, 10))) % 10
        return f"{title[:digit]}{other}{title[digit + 1 :]}"

    def change_name(title: str) -> str:
        found = list(known.finditer(title))
        if not found:
            return title
        position = found[draw.integers(len(found))]
        others = [
            name for name in entities[kind_of[position[1]]] if name not in title and len(name) == len(position[1])
        ]
        return (
            title[: position.start()] + others[draw.integers(len(others))] + title[position.end() :]
            if others
            else title
        )

    def change_negation(title: str) -> str:
        for number in draw.permutation(len(NEGATED)):
            pattern, replacement = NEGATED[number]
            if pattern.search(title):
                return pattern.sub(replacement, title, count=1)
        return title

    changes = {"number": change_number, "name": change_name, "negation": change_negation}
    for kind, change in changes.items():
        pairs = ((kind, title, change(title)) for title in order)
        made += itertools.islice((pair for pair in pairs if pair[1] != pair[2]), wanted[kind])
    return made
