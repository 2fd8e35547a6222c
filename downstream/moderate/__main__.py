"""Judge or soften comments, or train a model of them, from the command line.

    echo "정말 못생긴 놈이 나왔네" | python -m downstream.moderate -
    python -m downstream.moderate comments.csv --field text=댓글 --json --soften > judged.jsonl
    python -m downstream.moderate train --data ROOT --out FOLDER

A comment is a line of a `.txt` file or of the standard input, or a record of `.jsonl`, `.json`, `.csv` or `.tsv`. A
record that cannot be read is reported with its line, and the command ends with exit code 1.
"""

import dataclasses
import json
import sys
from pathlib import Path

from corpora.documents import RejectedRecord, read_files, report_rejected
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import alone, sha256, write_json
from corpora.official import data_root
from corpora.readers.fields import parse_fields
from downstream.encoders.folder import BUNDLED
from downstream.moderate.model import Moderation, Moderator
from downstream.moderate.softening import Softened, soften_with


def main(argv: list[str] | None = None) -> int:
    """Judge comments, or train a model."""
    given = sys.argv[1:] if argv is None else argv
    return _train(given[1:]) if given[:1] == ["train"] else _judge(given)


def _judge(argv: list[str]) -> int:
    parser = ArgumentParser(
        "python -m downstream.moderate", "Judge comments; `train` as the first argument trains a model."
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="files, folders, or - for the standard input"
    )
    parser.add_argument("--model", type=Path, help="folder of a trained model; default: the bundled one")
    parser.add_argument("--headline", help="headline of the article under which all comments stand")
    parser.add_argument("--precision", type=float, default=0.8, help="that flagged comments are to have")
    parser.add_argument("--soften", action="store_true", help="propose softer wordings of flagged comments")
    parser.add_argument("--field", action="append", default=[], metavar="text=COLUMN", help="column of the text")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a comment")
    arguments = parser.parse(argv)
    fields = parse_fields(arguments.field)
    rejected: list[RejectedRecord] = []
    documents = read_files(arguments.files, rejected, fields=fields, text_unit="line")
    moderator = Moderator.load(arguments.model)
    try:
        moderator.threshold(arguments.precision)
    except ValueError as error:
        known = ", ".join(moderator.settings.thresholds)
        raise UsageError("--precision", str(arguments.precision), f"choose from {known}") from error
    for document in documents:
        found = moderator.moderate(document.text, arguments.headline, precision=arguments.precision)
        proposals: tuple[Softened, ...] = ()
        if arguments.soften:
            proposals = soften_with(moderator, document.text, arguments.headline, precision=arguments.precision)
        if arguments.json:
            record = {"id": document.id, **dataclasses.asdict(found)}
            record |= {"softened": [dataclasses.asdict(each) for each in proposals]} if arguments.soften else {}
            sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(_line(document.text, found))
            sys.stdout.writelines(f"\t{each.manner}\t{each.score:.3f}\t{_one_line(each.text)}\n" for each in proposals)
    return report_rejected(rejected)


def _line(text: str, found: Moderation) -> str:
    mark = "!" if found.is_flagged else "-"
    words = ", ".join(_one_line(span.text) for span in found.spans) if found.is_flagged else ""
    return f"{mark}\t{found.label}\t{found.score:.3f}\t{_one_line(text)}\t{words}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def record_files(folder: Path) -> None:
    """Write the digests of a bundled model's files into the manifest of the bundle."""
    manifest = folder.parent / "MANIFEST.json"
    values = json.loads(manifest.read_text(encoding="utf-8"))
    kept = {name: entry for name, entry in values["files"].items() if not name.startswith(f"{folder.name}/")}
    own = {
        f"{folder.name}/{path.name}": {"sha256": sha256(path), "size_bytes": path.stat().st_size}
        for path in folder.iterdir()
        if not path.name.startswith(".")  # the lock of the command that writes the folder
    }
    write_json(manifest, values | {"files": dict(sorted((kept | own).items()))})


def _train(argv: list[str]) -> int:
    parser = ArgumentParser("python -m downstream.moderate train", "Train a model of comments.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--recipe", type=Path, help="TOML; default: that of the bundled model")
    parser.add_argument("--encoder", help="folder of another encoder, or none for n-grams only")
    arguments = parser.parse(argv)
    from downstream.moderate.training import RECIPE, read_recipe, train_moderator

    recipe = read_recipe(arguments.recipe or RECIPE)
    if arguments.encoder:
        encoder = None if arguments.encoder == "none" else arguments.encoder
        recipe = recipe.model_copy(update={"encoder": encoder})
    with alone(arguments.out):
        model = train_moderator(recipe, data_root(arguments.data))
        model.save(arguments.out)
        if arguments.out.resolve().parent == BUNDLED.resolve():
            record_files(arguments.out)
    shown = ", ".join(f"{key}: {value:.3f}" for key, value in model.settings.thresholds.items())
    sys.stdout.write(f"{arguments.out}\nthresholds by precision: {shown}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
