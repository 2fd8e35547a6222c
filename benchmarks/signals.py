"""What the signals of stance, advertorials and clickbait find in real texts, how fast, and whether hostile texts hold.

    PRESSBERT_DATA=DATA python -m benchmarks.signals

No labelled Korean data are free to use, so nothing here is an accuracy: the page shows how often each kind of signal
occurs in Wikinews, press releases and petitions. Writes docs/benchmarks/signals.md.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from corpora.documents import Document, RejectedRecord, read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from downstream.advertorial import KINDS as ADVERTORIAL
from downstream.advertorial import advertorial
from downstream.clickbait import KINDS as CLICKBAIT
from downstream.clickbait import clickbait
from downstream.signals.finding import Findings
from downstream.stance import KINDS as STANCE
from downstream.stance import stance

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "signals.md"
SOURCES = {
    "Wikinews": "corpus/boddari_wikinews.csv",
    "press releases": "corpus/press_releases_municipal.jsonl.gz",
    "petitions": "corpus/petitions.jsonl.gz",
}
NUM_ARTICLES, NUM_HOSTILE = 300, 10_000
PIECES = (
    *(
        "",
        "“",
        "”",
        '"',
        "‘이것’",
        "…",
        "?",
        "!",
        "비판했다",
        "환영",
        "충격",
        "결국 ",
        "02-123-4567",
        "http://",
        "www.a.kr",
    ),
    *(
        "1,000원",
        "한빛",
        "은 ",
        "\n",
        "\ud800",
        "\u200b",
        "가" * 40,
        "(",
        ")",
        "[단독]",
        "@",
        "100% 할인",
        "\x00",
        "ᄀ",
        "。",
    ),
)


def read_source(path: Path) -> list[Document]:
    """Return articles of a file, drawn from the whole of it."""
    rejected: list[RejectedRecord] = []
    documents = list(read_documents(path, rejected=rejected))
    return random.Random(0).sample(documents, min(NUM_ARTICLES, len(documents)))  # noqa: S311


def find_all(text: str, title: str) -> list[Findings]:
    """Return what the three tools find; the headline is not compared with the article, which needs a model."""
    return [stance(text, title), advertorial(text, title), clickbait(title)]


def share_with(articles: Sequence[Document]) -> tuple[Counter[str], int]:
    """Return in how many articles each kind of signal occurs, and the number of characters."""
    counts: Counter[str] = Counter()
    for article in articles:
        counts.update({s.kind for found in find_all(article.text, article.title) for s in found.signals})
    return counts, sum(len(article.text) for article in articles)


def hostile_texts() -> int:
    """Return the number of hostile texts whose signals are all exact slices; raises where a tool crashes."""
    draw = random.Random(1)  # noqa: S311
    right = 0
    for _ in range(NUM_HOSTILE):
        text, title = ("".join(draw.choices(PIECES, k=draw.randrange(12))) for _ in range(2))
        signals = [signal for found in find_all(text, title) for signal in found.signals]
        right += all((title if s.part == "title" else text)[s.start : s.end] == s.text for s in signals)
    return right


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.signals", "Measure the signals of stance, advertorials, clickbait.")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    root = data_root(parser.parse(argv).data)
    articles = {name: read_source(root / path) for name, path in SOURCES.items()}
    began = time.perf_counter()
    found = {name: share_with(some) for name, some in articles.items()}
    characters_per_s = sum(size for _, size in found.values()) / (time.perf_counter() - began)
    rows = "\n".join(
        f"| {tool} | {kind} | " + " | ".join(f"{found[n][0][kind] / len(articles[n]):.1%}" for n in SOURCES) + " |"
        for tool, kinds in (("stance", STANCE), ("advertorial", ADVERTORIAL), ("clickbait", CLICKBAIT))
        for kind in kinds
    )
    numbers = ", ".join(f"{len(some)} {name}" for name, some in articles.items())
    page = f"""# Signals of stance, advertorials and clickbait

`PRESSBERT_DATA=DATA python -m benchmarks.signals`

Share of articles with a signal: {numbers}.
This is no accuracy: no labelled data are free to use. Petitions and press releases have other headlines than news.

| tool | signal | {" | ".join(SOURCES)} |
| --- | --- | {" | ".join("---:" for _ in SOURCES)} |
{rows}

All three tools together read {characters_per_s:,.0f} characters per second. Of {NUM_HOSTILE:,} hostile texts
{hostile_texts():,} give exact slices, and none a crash.
"""
    write_text(PAGE, page)
    sys.stdout.write(f"{PAGE}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
