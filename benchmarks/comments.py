"""How well the bundled classifier finds hateful and offensive comments on news, which it was not trained to do.

    PRESSBERT_DATA=DATA python -m benchmarks.comments

BEEP! (Moon, Cho and Lee 2020): comments on entertainment news, labelled none, offensive or hate. A comment that is not
`none` is positive; it is found if the label `negative` of the film-review model has at least a probability. All 7,896
training comments of BEEP! are measured, none of which the model has read. Writes docs/benchmarks/comments.md, and the
counts that the demo shows.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np

from apps.demo_pages.comment_models import MEASURED, OnNews, default_label
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.files import sha256, write_json, write_text
from corpora.official import data_root
from downstream.classify import Classifier
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import bundled
from downstream.task import get_task
from downstream.thresholds import ThresholdPoint, threshold_points, wilson95

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "comments.md"
THRESHOLDS = tuple(k / 100 for k in range(5, 100, 5))
SOURCE = "BEEP!"


def measure(folder: Path, data: Path) -> OnNews:
    """Measure a classifier of single texts on the comments.

    Raises:
        SuiteError: the model or the comments cannot be read.
    """
    task = get_task("hate")
    examples = task.read_split("train", data).examples
    classifier = Classifier.load(folder)
    label = default_label(classifier.predictor.finetuned.task, classifier.labels)
    scores = np.vstack(
        [
            classifier.probabilities([example.text for example in examples[first : first + 64]])
            for first in range(0, len(examples), 64)
        ]
    )[:, classifier.labels.index(label)]
    golds = [example.label != "none" for example in examples]
    points = threshold_points(scores.tolist(), golds, THRESHOLDS)
    return OnNews(ModelFolder(folder).digest(), label, SOURCE, len(examples), sum(golds), tuple(points))


def page(found: OnNews, model: str, data_sha256: str) -> str:
    """Return the page with the figures."""
    rows = "\n".join(_row(point, found) for point in found.points)
    return f"""# Comments on news

`PRESSBERT_DATA=DATA python -m benchmarks.comments`

Model: `{model}`, fine-tuned on film reviews; label `{found.label}`. Data: {SOURCE} training comments
(sha256 `{data_sha256[:12]}…`), {found.num_comments:,} comments on entertainment news, of which {found.num_positive:,}
({found.num_positive / found.num_comments:.1%}) are labelled offensive or hate: the precision of flagging every comment.
No threshold was chosen on them.

| threshold | flagged | precision | 95 % | recall | 95 % |
| ---: | ---: | ---: | ---: | ---: | ---: |
{rows}
"""


def _row(point: ThresholdPoint, found: OnNews) -> str:
    cells = [f"{point.threshold:.2f}", f"{point.num_flagged / found.num_comments:.1%}"]
    for share, total in ((point.precision, point.num_flagged), (point.recall, point.num_positive)):
        ends = wilson95(point.num_right, total)
        cells += ["–", "–"] if share is None or ends is None else [f"{share:.1%}", f"{ends[0]:.1%}–{ends[1]:.1%}"]
    return f"| {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.comments", "Measure the bundled classifier on comments on news.")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    arguments = parser.parse(argv)
    folder, data = bundled("classifier"), data_root(arguments.data)
    found = measure(folder, data)
    write_json(MEASURED, {"models": [dataclasses.asdict(found)]})
    write_text(PAGE, page(found, folder.name, sha256(data / get_task("hate").files["train"].path)))
    sys.stdout.write(f"{PAGE}\n{MEASURED}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
