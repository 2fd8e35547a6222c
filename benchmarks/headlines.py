"""How close headlines are to those of editors, on press releases and news that no choice was made on.

    PRESSBERT_DATA=DATA python -m benchmarks.headlines

The split `test` of `downstream.headlines.pairs`: the bundled model learned from `train`, and `dev` chose the length and
the weight of transitions. Writes docs/benchmarks/headlines.md.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import write_text
from corpora.official import data_root
from downstream.headlines.evaluation import HeadlineScores, evaluate_headlines
from downstream.headlines.pairs import read_pairs
from downstream.headlines.writer import NUM_BEAMS, HeadlineWriter
from downstream.writing.likelihood import bundled_scorer
from pretraining.recipe import SAMPLE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "headlines.md"
SOURCES = {
    "press releases of municipalities": "corpus/press_releases_municipal.jsonl.gz",
    "press releases of ministries": "corpus/press_releases_korea_kr.jsonl.gz",
    "Wikinews": "corpus/boddari_wikinews.csv",
}
HEAD = """# Headlines

`PRESSBERT_DATA=DATA python -m benchmarks.headlines`

ROUGE-L F1 with the editor's headline, over Kiwi's morphemes, on articles held out by a hash of their titles. *Headline*
is the first one of the bundled model; *sentence* is the best sentence of the lead, *its beginning* as many morphemes of
it as the headline has. Interval and p are those of headline and sentence, paired by article. The encoder read
these articles in its pretraining.

| source | articles | headline | sentence | its beginning | difference, 95 % | p |
| --- | ---: | ---: | ---: | ---: | --- | ---: |
"""


def row_of(name: str, scores: HeadlineScores) -> str:
    """Return a row of the table."""
    values = scores.as_json()
    rouge, (low, high) = values["rouge_l"], values["difference_ci95"]
    return (
        f"| {name} | {values['num_texts']:,} | {rouge['written']:.3f} | {rouge['extractive']:.3f} "
        f"| {rouge['beginning']:.3f} | {low:+.3f} to {high:+.3f} | {values['p']:.4f} |\n"
    )


def page_of(root: Path, writer: HeadlineWriter) -> str:
    """Measure, and return the page."""
    pairs = {name: read_pairs([root / path], "test") for name, path in SOURCES.items()}
    scores = {name: evaluate_headlines(writer, some, num_beams=NUM_BEAMS) for name, some in pairs.items()}
    everything = HeadlineScores.join(list(scores.values()))
    rows = [row_of(name, some) for name, some in (*scores.items(), ("all", everything))]
    others = read_pairs([root / path for path in SOURCES.values()], "dev")
    held_out = HeadlineScores.join([everything, evaluate_headlines(writer, others, num_beams=NUM_BEAMS)])
    values = held_out.as_json()
    fluency = _fluency(everything.headlines)
    titles = [pair.title for some in pairs.values() for pair in some]
    examples = read_pairs([SAMPLE], "test")
    shown = evaluate_headlines(writer, examples, num_beams=NUM_BEAMS).headlines
    return (
        HEAD
        + "".join(rows)
        + f"""
Of {values["num_candidates"]:,} candidates for {values["num_texts"]:,} articles, those of `dev` included,
{values["num_refused"]:,} were refused for a number or a name that the article seemed not to have. In the headlines
there are {values["num_invented"]} of these. The candidates of an article take
{1000 * held_out.seconds.mean():.0f} ms on the mean.

By the bundled masked language model the mean log-probability of a word is {fluency:.2f} in the headlines and
{_fluency(titles):.2f} in the editors'.

## Headlines of embedded articles

These articles were written for the package, and are not in the table above.

| title | headline |
| --- | --- |
"""
        + "".join(
            f"| {_cell(pair.title)} | {_cell(headline)} |\n" for pair, headline in zip(examples, shown, strict=True)
        )
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _fluency(texts: Sequence[str]) -> float:
    words = [word.log_probability for words in bundled_scorer().words(texts) for word in words]
    return sum(words) / len(words)


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.headlines", "Score the bundled model of headlines.")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--out", type=Path, default=PAGE, help="page")
    arguments = parser.parse(argv)
    page = page_of(data_root(arguments.data), HeadlineWriter())
    write_text(arguments.out, page)
    sys.stdout.write(page)
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
