"""All pairs of a folder in one file, as JSON and as Markdown with headings in Korean and English."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from corpora.foundation.errors import ResultError
from corpora.foundation.files import atomic_file, sha256, write_json, write_text
from corpora.foundation.texts import Language, Texts
from corpora.overlap import MEASURES, Measure, OverlapConfig
from eval.contamination.files import (
    EXCERPT,
    FOLDER,
    OVERVIEW,
    SCHEMA,
    ContaminationFile,
    Pair,
    excerpt,
    find_pairs,
    hits_path,
    in_order,
    pair_path,
    positions_of,
    read_hits,
    write_hits,
)

SETTINGS = OverlapConfig()
"""What counts as overlap in every check."""


def write_overview(pairs: Iterable[Pair], out: Path) -> None:
    """Write `contamination.json` and `contamination.md` of PAIRS to OUT.

    Raises:
        ResultError: a file cannot be written.
    """
    ordered = in_order(pairs)
    write_json(out / OVERVIEW, ContaminationFile(schema=SCHEMA, pairs=tuple(ordered)).model_dump(by_alias=True))
    write_text(out / f"{FOLDER}.md", to_markdown(ordered))


def merge_pairs(folders: Iterable[Path], out: Path) -> list[ResultError]:
    """Copy the finished pairs of other leaderboard folders to OUT, with their hits; the last copy of a pair wins.

    Returns:
        The errors of unreadable files.

    Raises:
        ResultError: OUT cannot be written.
    """
    errors: list[ResultError] = []
    for folder in folders:
        pairs, damaged = find_pairs(folder)
        errors += damaged
        for pair in pairs:
            # The pair comes last: its presence says that the hits are complete.
            for path in (hits_path, pair_path):
                source = path(folder, pair.task, pair.corpus)
                if source.is_file():
                    with atomic_file(path(out, pair.task, pair.corpus), "wb") as file:
                        file.write(source.read_bytes())
    merged, _ = find_pairs(out)
    if merged:
        write_overview(merged, out)
    return errors


def publish_excerpts(work: Path, out: Path) -> list[Path]:
    """Write the overview of WORK to OUT, with at most `EXCERPT` hits of each pair; returns the files.

    Every pair then says that its list is an excerpt, and has the digest of the shorter list.

    Raises:
        ResultError: a file of WORK is damaged, or OUT cannot be written.
    """
    content = ContaminationFile.model_validate_json((work / OVERVIEW).read_bytes())
    published, paths = [], []
    for pair in content.pairs:
        if pair.hits:
            hits = read_hits(hits_path(work, pair.task, pair.corpus))
            shorter, path = excerpt(hits), hits_path(out, pair.task, pair.corpus)
            write_hits(path, shorter)
            paths.append(path)
            listed = pair.positions if pair.is_excerpt else positions_of(hits)
            pair = pair.model_copy(
                update={
                    "positions": listed,
                    "hits_sha256": sha256(path),
                    "num_hits": max(pair.num_hits, len(hits)),
                    "is_excerpt": pair.is_excerpt or len(shorter) < len(hits),
                }
            )
        published.append(pair)
    write_overview(published, out)
    return [*paths, out / OVERVIEW, out / f"{FOLDER}.md"]


def measure_title(measure: Measure, language: Language) -> str:
    """Return the name of a measure."""
    return Texts(language, "report.measure")(measure)


def measure_meaning(measure: Measure, language: Language) -> str:
    """Return what a measure counts as overlap, under `SETTINGS`."""
    return Texts(language, "report.measure_meaning")(measure, **SETTINGS.model_dump())


def to_markdown(pairs: Sequence[Pair]) -> str:
    """Return pairs as tables in GitHub Markdown, headings in Korean and English."""
    titles = [" · ".join(dict.fromkeys(measure_title(m, language) for language in ("ko", "en"))) for m in MEASURES]
    head = [_both("task"), _both("training_text")]
    found = [pair for pair in pairs if pair.status == "ok"]
    clean = [pair for pair in found if pair.is_clean]
    holding = [pair for pair in found if any(counts.num_documents for counts in pair.measures.values())]
    examples = [[*_names(p), f"{p.num_examples:,}", *_touched_cells(p)] for p in found if not p.is_clean]
    documents = [[*_names(pair), f"{pair.num_documents:,}", *_document_cells(pair)] for pair in holding]
    lines = [f"# {_both('title')}", "", *_explained("examples"), ""]
    lines += [*_table([*head, _both("examples"), *titles], examples), ""]
    lines += [*_explained("documents"), "", *_table([*head, _both("documents"), *titles], documents), ""]
    if clean:
        lines += [*_explained("clean"), "", *_clean_lines(clean), ""]
    lines += [f"## {_both('measures')}", ""]
    for title, measure in zip(titles, MEASURES, strict=True):
        english = measure_meaning(measure, "en")
        lines.append(f"- **{title}**: {measure_meaning(measure, 'ko')}. / {english[0].upper()}{english[1:]}.")
    lines.append("")
    if any(pair.is_excerpt for pair in found):
        lines += [f"## {_both('hits')}", "", *_texts("excerpt"), ""]
    gaps = [f"- {pair.task} · {pair.corpus}: {pair.reason}" for pair in pairs if pair.status != "ok"]
    if gaps:
        lines += [f"## {_both('failed')}", "", *gaps, ""]
    return "\n".join(lines)


def _texts(key: str) -> list[str]:
    values = {"min_quote": SETTINGS.min_quote, "size": EXCERPT}
    return [Texts(language, "report.contamination")(key, **values) for language in ("ko", "en")]


def _both(key: str) -> str:
    korean, english = _texts(key)
    return f"{korean} ({english})"


def _explained(key: str) -> list[str]:
    return [f"## {_both(f'{key}_title')}", "", *_texts(f"{key}_text")]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", "---", *["---:"] * (len(head) - 2)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _names(pair: Pair) -> tuple[str, str]:
    own = f" ({', '.join(_texts('own_split'))})" if pair.source == "split" else ""
    return f"{pair.task} {pair.split}", f"{pair.corpus}{own}"


def _clean_lines(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield a line for each task, with the training texts it does not overlap with."""
    for task, group in groupby(pairs, key=lambda pair: f"{pair.task} {pair.split}"):
        yield f"- {task}: {', '.join(_names(pair)[1] for pair in group)}"


def _touched_cells(pair: Pair) -> Iterator[str]:
    for counts in pair.measures.values():
        if counts.share is None:
            yield "—"
        else:
            longer = counts.num_touched - counts.num_touched_short
            yield f"{counts.num_touched:,} ({100 * counts.share:.2f}%) · {longer:,}"


def _document_cells(pair: Pair) -> Iterator[str]:
    for counts in pair.measures.values():
        yield "—" if counts.share is None else f"{counts.num_documents:,}"
