"""Precision of the rules for awkward wording, by the hits that were judged by eye.

    python -m benchmarks.awkward --out docs/benchmarks

`benchmarks/data/awkward_judged.tsv` holds hits in Wikinews, press releases, reviews and petitions, at most 14 for a
rule, each with a verdict: would an editor change it? One reader judged them. Those of the part
`refined` were seen before the rules got their last form; those of the part `fresh` were not.
"""

import sys
from collections import Counter
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from downstream.awkward.rules import all_rules
from downstream.readers import read_tsv_rows

JUDGED = Path("benchmarks/data/awkward_judged.tsv")
Z = 1.96


def wilson(hits: int, number: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    share = hits / number
    middle = (share + Z * Z / (2 * number)) / (1 + Z * Z / number)
    half = Z * (share * (1 - share) / number + Z * Z / (4 * number * number)) ** 0.5 / (1 + Z * Z / number)
    return middle - half, middle + half


def page() -> str:
    """Return the page as Markdown."""
    kinds = {compiled.rule.name: compiled.rule.kind for compiled in all_rules()}
    good: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for _, (verdict, part, rule) in read_tsv_rows(JUDGED, "verdict", "part", "rule"):
        for name in (kinds[rule], f"all, {part}", "all"):
            total[name] += 1
            good[name] += verdict == "awkward"
    rows = []
    for name in (*sorted(total.keys() - {"all"}), "all"):
        low, high = wilson(good[name], total[name])
        rows.append(f"| {name} | {total[name]} | {good[name] / total[name]:.3f} | {low:.3f}–{high:.3f} |")
    head = ["# Awkward wording: hits judged by eye", "", "`python -m benchmarks.awkward`", ""]
    table = [
        f"{len(kinds)} rules.",
        "",
        "| hits | number | precision | 95 % |",
        "| --- | ---: | ---: | ---: |",
        *rows,
        "",
    ]
    return "\n".join([*head, *table])


def main(argv: list[str] | None = None) -> int:
    """Compute the precision from the command line."""
    parser = ArgumentParser("python -m benchmarks.awkward", "Precision of the rules for awkward wording.")
    parser.add_argument("--out", type=Path, help="folder of the page; default: standard output only")
    arguments = parser.parse(argv)
    text = page()
    if arguments.out:
        write_text(arguments.out / "awkward.md", text)
    sys.stdout.write(text)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
