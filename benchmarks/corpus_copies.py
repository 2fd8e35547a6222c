"""Near-copies planted in an archive: how many of them `corpora.build` drops, and how many other texts with them.

    python -m benchmarks.corpus copies --data ROOT --documents 20000 --work WORK

Articles are made of the sentences of real texts, as in `python -m benchmarks.corpus archive`. Copies are made of some
of them by the edits of newsrooms, until the Jaccard index of their runs of five letters is what was drawn for the pair.
Minimal pairs are real headlines, and real sentences of 60 letters and more, that differ in a number, name or negation.
"""

import gzip
import itertools
import json
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clustering_measures import marked_names, minimal_pairs
from corpora.build import BuildConfig, build
from corpora.characters import nfc
from corpora.cleaning import CleaningConfig, edit, letters_of
from corpora.corpus import read_corpus
from corpora.documents import read_documents
from corpora.pipeline.duplicates import MAX_SENTENCE, MIN_LETTERS, WIDTH
from corpora.sentences import split_by_rules

SOURCES = ("press_releases_municipal.jsonl.gz", "boddari_wikinews.csv", "petitions.jsonl.gz")
HEADLINES = "news_titles_kocohub.txt.gz"
MOST_TEXTS = 2_500
"""Of each source."""
ARTICLE_CHARS = (250, 1_000)
"""Of short articles and of longer ones, half of the articles each."""
NUM_COPIES, NUM_MINIMAL = 4_000, 1_000
BINS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Borders of the Jaccard indices of planted pairs."""
LIMIT = CleaningConfig().near_duplicates
MORE_EDITS = 60


@dataclass(frozen=True)
class Pair:
    """Ids of two texts of an archive, and what they are."""

    first: str
    second: str
    kind: str
    """The lower border of the Jaccard index, or the name of the minimal pairs."""


def jaccard(first: str, second: str) -> float:
    """Return the Jaccard index of the runs of `WIDTH` letters of two texts."""
    sets = [
        {letters[k : k + WIDTH] for k in range(len(letters) - WIDTH + 1)}
        for letters in (letters_of(first), letters_of(second))
    ]
    return len(sets[0] & sets[1]) / max(1, len(sets[0] | sets[1]))


def read_sentences(data: Path) -> list[list[str]]:
    """Return the sentences of each source, after the edits of cleaning."""
    pools = []
    for name in SOURCES:
        documents = itertools.islice(read_documents(data / "corpus" / name, rejected=[]), MOST_TEXTS)
        lines = (line for document in documents for line in edit(document.text, CleaningConfig())[0].split("\n"))
        found = [" ".join(words) for line in lines for words in split_by_rules(line)]
        pools.append([sentence for sentence in found if len(sentence) > 10])
    return pools


def make_article(rng: random.Random, pool: Sequence[str]) -> str:
    """Return an article: a run of sentences with others between them."""
    parts: list[str] = []
    length = rng.choice(ARTICLE_CHARS)
    position = rng.randrange(len(pool))
    while sum(map(len, parts)) < length or len(parts) < 2:
        parts.append(rng.choice(pool) if rng.random() < 0.5 else pool[position % len(pool)])
        position += 1
    return " ".join(parts)


def make_copy(rng: random.Random, text: str, pool: Sequence[str], target: float) -> tuple[str, float]:
    """Edit a text until its Jaccard index with the original is at most TARGET; return it and the index."""
    copy, found = text, 1.0
    for _ in range(MORE_EDITS):
        if found <= target:
            break
        edited = _edit(rng, copy, pool)
        index = jaccard(text, edited)
        # A step that goes too far is drawn again.
        if index >= target - 0.03:
            copy, found = edited, index
    return copy, found


def _edit(rng: random.Random, text: str, pool: Sequence[str]) -> str:
    words = text.split(" ")
    place = rng.randrange(len(words))
    match rng.randrange(5):
        case 0:  # another word
            words[place] = rng.choice(rng.choice(pool).split(" "))
        case 1:  # another number
            words[place] = f"{rng.randrange(10_000):,}명"
        case 2:  # some words left out
            del words[place : place + rng.randrange(1, 5)]
        case 3:  # some words more
            words[place:place] = rng.choice(pool).split(" ")[: rng.randrange(1, 5)]
        case _:  # a byline in the middle of an agency's text
            words.insert(place, f"({rng.choice('가나다라마')}{rng.choice('바사아자차')} 기자)")
    return " ".join(words)


def make_pairs(data: Path, pools: Sequence[Sequence[str]], num_documents: int, archive: Path) -> list[Pair]:
    """Write the archive of sentences from POOLS, copies behind their originals, and return the planted pairs."""
    rng = random.Random(7)  # noqa: S311 - no secrets
    texts: list[tuple[str, str]] = []
    pairs: list[Pair] = []
    copied = set(rng.sample(range(num_documents - NUM_COPIES), NUM_COPIES))
    copies: list[tuple[str, str]] = []
    for number in range(num_documents - NUM_COPIES):
        pool = rng.choice(pools)
        texts.append((f"n{number}", make_article(rng, pool)))
        if number in copied:
            copy, index = make_copy(rng, texts[-1][1], pool, rng.uniform(BINS[0], 1.0))
            copies.append((f"c{number}", copy))
            border = max((border for border in BINS[:-1] if border <= index), default=BINS[0])
            pairs.append(Pair(f"n{number}", f"c{number}", f"{border:.2f}"))
    rng.shuffle(copies)
    texts += copies
    names = marked_names(data)
    with gzip.open(data / "corpus" / HEADLINES, "rt", encoding="utf-8") as file:
        headlines = sorted({nfc(line.strip()) for line in file} - {""})
    kinds = {"headlines": headlines}
    sentences = sorted({sentence for pool in pools for sentence in pool})
    lengths = [len(letters_of(sentence)) for sentence in sentences]
    for low, high in itertools.pairwise((60, MIN_LETTERS, MAX_SENTENCE, max(*lengths, MAX_SENTENCE) + 1)):
        name = (
            f"sentences of {low} to {high - 1} letters" if high <= MAX_SENTENCE else f"runs of {low} letters and more"
        )
        kinds[name] = [sentence for sentence, length in zip(sentences, lengths, strict=True) if low <= length < high]
    for kind, pool in kinds.items():
        # A text can have a number, a name and a negation; its other pairs would be exact copies of it.
        made = {first: second for _, first, second in minimal_pairs(pool, names, NUM_MINIMAL, seed=3)}
        for number, (first, second) in enumerate(made.items()):
            pair = Pair(f"{kind}, {number}a", f"{kind}, {number}b", kind)
            texts += [(pair.first, first), (pair.second, second)]
            pairs.append(pair)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(archive, "wt", encoding="utf-8", compresslevel=1) as file:
        for id_, text in texts:
            file.write(json.dumps({"id": id_, "text": text}, ensure_ascii=False) + "\n")
    return pairs


def measure_copies(data: Path, num_documents: int, work: Path, tasks: int = 1) -> str:
    """Build the archive, and return the tables of what was merged and of the lengths of sentences."""
    shutil.rmtree(work, ignore_errors=True)
    pools = read_sentences(data)
    pairs = make_pairs(data, pools, num_documents, work / "archive.jsonl.gz")
    # Everything else that drops or changes texts is off: what is missing afterwards is a duplicate.
    cleaning = CleaningConfig(quality=False, min_hangul=0, max_repetition=1, repeated_lines=0, privacy=())
    config = BuildConfig(held_out=0, cleaning=cleaning)
    manifest = build([work / "archive.jsonl.gz"], work / "corpus", config, tasks=tasks)
    sys.stderr.write(f"{manifest.totals.model_dump()}\n")
    kept = {document.id.rpartition("#")[2] for document in read_corpus(work / "corpus")}
    return f"{table(pairs, kept)}\n{lengths_table(pools)}"


def lengths_table(pools: Sequence[Sequence[str]]) -> str:
    """Return how long the sentences of each source are, in Markdown."""
    lines = [
        f"| source | sentences | of {MIN_LETTERS} letters and more | of {MAX_SENTENCE} letters and more |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, pool in zip(SOURCES, pools, strict=True):
        lengths = [len(letters_of(sentence)) for sentence in pool]
        counts = [sum(length >= least for length in lengths) for least in (0, MIN_LETTERS, MAX_SENTENCE)]
        lines.append(f"| `{name}` | {' | '.join(f'{count:,}' for count in counts)} |")
    return "\n".join(lines) + "\n"


def table(pairs: Sequence[Pair], kept: set[str]) -> str:
    """Return the share of each kind of pairs of which one text was dropped, in Markdown."""
    counts: dict[str, list[int]] = {}
    for pair in pairs:
        counted = counts.setdefault(pair.kind, [0, 0])
        counted[0] += 1
        counted[1] += not {pair.first, pair.second} <= kept
    for name in ("copies", "others"):
        chosen = [
            counted
            for kind, counted in counts.items()
            if kind[0].isdigit() and (float(kind) >= LIMIT) == (name == "copies")
        ]
        counts[name] = [sum(counted[k] for counted in chosen) for k in (0, 1)]
    titles = {"copies": f"all from {LIMIT:.2f}", "others": f"all below {LIMIT:.2f}"}
    ends = {f"{low:.2f}": f"copies, Jaccard index {low:.2f} to {high:.2f}" for low, high in itertools.pairwise(BINS)}
    lines = ["| pairs | planted | merged | share |", "| --- | ---: | ---: | ---: |"]
    for kind in sorted(ends) + ["copies", "others"] + [k for k in counts if not k[0].isdigit() and k not in titles]:
        if kind in counts and counts[kind][0]:
            planted, merged = counts[kind]
            title = ends.get(kind) or titles.get(kind) or f"minimal pairs, {kind}"
            lines.append(f"| {title} | {planted:,} | {merged:,} | {100 * merged / planted:.2f} % |")
    return "\n".join(lines) + "\n"
