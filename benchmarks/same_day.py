"""Which headline belongs to which article of its day: the bundled embedder, and trained on, with and without negatives.

    PRESSBERT_DATA=DATA python -m benchmarks.same_day

Press releases of some days are for training, of others for the choice of the learning rate, and of the rest for the
figures. The bundled embedder is trained on with the stage `headline_body` and with `headline_day`, whose hard negatives
are articles of the same day. Writes docs/benchmarks/same_day.md; an interrupted run continues from WORK.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import fingerprint, write_text
from corpora.foundation.machine import cpu_name
from corpora.official import data_root
from downstream.embed import encode
from downstream.embeddings.recipe import STAGES, EmbedRecipe
from downstream.embeddings.rows import headlines
from downstream.embeddings.training import train_embedder
from downstream.encoders.hub import bundled
from downstream.finetuning.ngrams import vectorizer
from downstream.summaries.evaluation import paired_p

FloatArray = npt.NDArray[np.float64]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "same_day.md"
SOURCES = ("press_releases_municipal.jsonl.gz", "press_releases_korea_kr.jsonl.gz")
KINDS = ("headline_body", "headline_day")
LEARNING_RATES = (5e-5, 2e-4)
EPOCHS = 2
BATCH = 32
NGRAMS = (2, 4)
TASKS = {"klue-sts": "pearson", "korsts-dev": "spearman"}
"""Tasks on which the vectors may become worse, and their measures."""


class Article(NamedTuple):
    """A press release."""

    title: str
    body: str
    day: str


def read_articles(paths: Sequence[Path]) -> list[Article]:
    """Return the different articles that have a title, a body and a day; a title at the beginning of a body is cut."""
    documents = (document for path in paths for document in read_documents(path, rejected=[]))
    found = (Article(*found) for found in headlines(documents, Counter()))
    return list(dict.fromkeys(article for article in found if article.day))


def split_days(articles: Sequence[Article]) -> dict[str, list[Article]]:
    """Return `test`, the articles of a third of the days, `dev`, those of a sixth, and `train`; a hash decides."""
    parts: dict[str, list[Article]] = {"train": [], "dev": [], "test": []}
    for article in articles:
        number = int(fingerprint(f"same day {article.day}")[:8], 16) % 6
        parts["test" if number < 2 else "dev" if number == 2 else "train"].append(article)
    return parts


def reciprocal_ranks(articles: Sequence[Article], likeness: Callable[[list[str], list[str]], FloatArray]) -> FloatArray:
    """Return one over the rank of every article's body for its title, among the bodies of its day; (N,).

    Args:
        articles: N articles.
        likeness: of texts and texts, (n, n), those of one day at a time.
    """
    ranks = np.empty(len(articles))
    for day in sorted({article.day for article in articles}):
        numbers = [k for k, article in enumerate(articles) if article.day == day]
        scores = likeness([articles[k].title for k in numbers], [articles[k].body for k in numbers])
        ranks[numbers] = 1 / (1 + (scores > scores.diagonal()[:, None]).sum(1))
    return ranks


def by_model(model: Path) -> Callable[[list[str], list[str]], FloatArray]:
    """Return the cosines of an embedder."""
    return lambda one, two: np.asarray(encode(one, model=model) @ encode(two, model=model).T, dtype=np.float64)


def by_ngrams(articles: Sequence[Article]) -> Callable[[list[str], list[str]], FloatArray]:
    """Return the cosines of the TF-IDF of character n-grams, counted on ARTICLES."""
    weights = vectorizer(*NGRAMS).fit([text for title, body, _ in articles for text in (title, body)])
    return lambda one, two: np.asarray((weights.transform(one) @ weights.transform(two).T).todense())


def train(kind: str, peak_lr: float, seed: int, articles: Path, out: Path, data: Path) -> Mapping[str, Any]:
    """Train the bundled embedder on, and return the manifest."""
    values: dict[str, Any] = {"data": (str(articles),), "epochs": EPOCHS, "batch_size": BATCH, "peak_lr": peak_lr}
    stage: Any = STAGES[kind](kind=kind, **values)
    recipe = EmbedRecipe(stages=(stage,), dimensions=(64, 128), evaluate=tuple(TASKS), seed=seed)
    return train_embedder(bundled("embedder"), recipe, out=out, data=data)


def page(parts: Mapping[str, Sequence[Article]], rows: Sequence[Sequence[str]], tests: Sequence[str]) -> str:
    """Return the page for the docs."""
    days = {name: len({article.day for article in some}) for name, some in parts.items()}
    counts = ", ".join(f"{len(some):,} of {days[name]} days ({name})" for name, some in parts.items())
    lines = [
        "# Headlines and articles of a day",
        "",
        "`PRESSBERT_DATA=DATA python -m benchmarks.same_day`",
        "",
        f"A headline has to find its article among all of the same day. Press releases: {counts}; a hash of the day "
        "decides. The embedder read them in pretraining, without the pairing. Trained on: the bundled embedder after "
        f"{EPOCHS} epochs on `train` with `headline_body` (negatives of the batch) or `headline_day` (and a similar "
        f"article of the same day); `dev` chose the learning rate of each among {LEARNING_RATES[0]} and "
        f"{LEARNING_RATES[1]}. Mean and standard deviation of the seeds; {cpu_name()}.",
        "",
        "| vectors | learning rate | found at once, % | mean reciprocal rank | KLUE-STS dev, Pearson "
        "| KorSTS dev, Spearman |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        "Differences of the mean reciprocal rank on `test`, paired randomization test over articles:",
        "",
        *(f"- {test}" for test in tests),
    ]
    return "\n".join([*lines, ""])


def main(argv: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = ArgumentParser("python -m benchmarks.same_day", "Which headline belongs to which article of its day?")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA")
    parser.add_argument("--work", type=Path, default=Path("runs/same-day"), help="folder of the trained models")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse(argv)
    root = data_root(arguments.data)
    parts = split_days(read_articles([root / "corpus" / name for name in SOURCES]))
    articles = arguments.work / "train.jsonl"
    records = ({"title": title, "text": body, "date": day} for title, body, day in parts["train"])
    write_text(articles, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    ranks = {
        "character n-grams": [reciprocal_ranks(parts["test"], by_ngrams(parts["train"]))],
        "bundled": [reciprocal_ranks(parts["test"], by_model(bundled("embedder")))],
    }
    scores: dict[str, list[Mapping[str, Any]]] = {}
    rates = {}
    for kind in KINDS:
        outs = {rate: arguments.work / f"{kind}-{rate}-0" for rate in LEARNING_RATES}
        for rate, out in outs.items():
            train(kind, rate, 0, articles, out, root)
        rates[kind] = max(outs, key=lambda rate: reciprocal_ranks(parts["dev"], by_model(outs[rate])).mean())
        for seed in range(arguments.seeds):
            out = arguments.work / f"{kind}-{rates[kind]}-{seed}"
            stages = train(kind, rates[kind], seed, articles, out, root)["stages"]
            ranks.setdefault(kind, []).append(reciprocal_ranks(parts["test"], by_model(out)))
            scores.setdefault("bundled", [stages[0]["scores"]])
            scores.setdefault(kind, []).append(stages[-1]["scores"])
            sys.stderr.write(f"{kind} {rates[kind]} seed {seed}: {ranks[kind][-1].mean():.4f}\n")
    rows = []
    for name, found in ranks.items():
        measured = [[score[task][measure] for score in scores.get(name, [])] for task, measure in TASKS.items()]
        values = [[(100 * (some == 1).mean()) for some in found], [some.mean() for some in found], *measured]
        cells = [_mean(some, digits) for some, digits in zip(values, (1, 4, 4, 4), strict=True)]
        rows.append([f"`{name}`" if name in KINDS else name, f"{rates[name]:g}" if name in rates else "", *cells])
    means = {name: np.mean(found, axis=0) for name, found in ranks.items()}
    baselines = ("character n-grams", "bundled")
    pairs = [reversed(baselines), *((kind, other) for kind in KINDS for other in baselines), reversed(KINDS)]
    tests = [
        f"{one} against {two}: {means[one].mean() - means[two].mean():+.4f}, p {paired_p(means[one], means[two]):.4f}"
        for one, two in pairs
    ]
    write_text(arguments.out, page(parts, rows, tests))
    sys.stdout.write(f"{arguments.out}\n")
    return EXIT_DONE


def _mean(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    run_command(main)
