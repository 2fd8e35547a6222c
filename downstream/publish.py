"""Publish a model folder on the Hugging Face Hub: check files, licences and card, then upload; a dry run by default.

    python -m downstream.publish runs/nsmc --repo newsroom/nsmc-bert --license cc-by-sa-4.0
    python -m downstream.publish runs/nsmc --repo newsroom/nsmc-bert --license cc-by-sa-4.0 --push

A dry run needs no network and writes nothing: it prints the card, the results in the form of `.eval_results`, every
file with its digest, and what stands in the way. `--out DIR` writes what would be uploaded. Only `--push` uploads, with
the token of `hf auth login`; it is refused while there are errors. Records of training and evaluation are left out,
because they quote the data.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from corpora.foundation.files import alone, sha256, write_text
from downstream.encoders.folder import RECORDS, SAFE_FILES, ModelFolder
from downstream.task import all_tasks, get_task

CARD = "README.md"
EVAL_RESULTS = ".eval_results/pressbert.yaml"
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
LICENSE_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
LOCAL_PATH = re.compile(r"(?:/(?:home|root|Users|tmp)/|[A-Z]:\\)[^\s\"']*")
HUB_DATASETS: Mapping[str, tuple[str, str]] = {
    "nsmc": ("e9t/nsmc", "default"),
    "korquad": ("KorQuAD/squad_kor_v1", "squad_kor_v1"),
    "kornli": ("kakaobrain/kor_nli", "xnli"),
    "hate": ("inmoonlight/kor_hate", "default"),
    "paws-x": ("google-research-datasets/paws-x", "ko"),
    **{f"klue-{name}": ("klue/klue", config) for name, config in (("nli", "nli"), ("sts", "sts"), ("mrc", "mrc"))},
    **{f"klue-{name}": ("klue/klue", config) for name, config in (("ner", "ner"), ("re", "re"), ("tc", "ynat"))},
    **{f"klue-{name}": ("klue/klue", config) for name, config in (("dp", "dp"), ("wos", "wos"))},
    **{f"kobest-{name}": ("skt/kobest_v1", name) for name in ("boolq", "copa", "hellaswag", "sentineg", "wic")},
}
"""Official task → data set on the hub, and its configuration with the evaluated examples."""
BENCHMARKS_ONLY = "the hub shows them once the data set is a benchmark there, and its eval.yaml has the task_id"


@dataclass(frozen=True)
class Publication:
    """What would be uploaded, and what stands in the way."""

    folder: Path
    repo: str
    files: tuple[Path, ...]
    """Of the folder, uploaded as they are."""
    card: str
    eval_results: str
    """Contents of `.eval_results/pressbert.yaml`; empty if no official task was measured."""
    errors: tuple[str, ...]
    """An upload is refused while there are any."""
    notes: tuple[str, ...]

    def contents(self) -> Iterator[tuple[str, Path | str]]:
        """Yield (path in the repository, file or text)."""
        yield from ((str(path.relative_to(self.folder)), path) for path in self.files)
        yield CARD, self.card
        if self.eval_results:
            yield EVAL_RESULTS, self.eval_results


def prepare(folder: Path, repo: str, *, license_id: str | None = None, accepted: tuple[str, ...] = ()) -> Publication:
    """Check a folder and make its card ready; nothing is written.

    Args:
        folder: of a model that the suite saved.
        repo: `OWNER/NAME` on the hub.
        license_id: licence of the weights, in the hub's spelling; default: the card's.
        accepted: tasks whose publisher allows what their licence does not.

    Raises:
        CheckpointError: the folder holds no model, or its card cannot be read.
        UsageError: the repository or the licence is not spelt as the hub's are.
    """
    from huggingface_hub import ModelCard

    if REPO.fullmatch(repo) is None:
        raise UsageError("--repo", f"'{repo}' is not OWNER/NAME", "give for example newsroom/nsmc-bert")
    if license_id is not None and LICENSE_ID.fullmatch(license_id) is None:
        raise UsageError("--license", f"'{license_id}' is no licence id", "write for example cc-by-sa-4.0")
    model = ModelFolder(folder)
    if not model.has_config and not model.is_summarizer:
        raise CheckpointError(folder, "no model in it", "give a folder that the suite saved")
    if not (folder / CARD).is_file():
        raise CheckpointError(folder / CARD, "there is no model card", "train the model with this version again")
    try:
        card: Any = ModelCard((folder / CARD).read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(folder / CARD, f"its head cannot be read ({error})", "correct the YAML") from error
    if license_id is not None:
        card.data.license, card.data.license_name = license_id, None
    files = tuple(_uploaded(folder))
    errors = [*_unsafe(folder, files), *_licence_errors(str(card.data.license or ""), _data_licences(model), accepted)]
    errors += _local_paths(folder, files, str(card))
    entries, notes = _eval_results(card)
    if card.data.base_model and REPO.fullmatch(str(card.data.base_model)) is None:
        notes.append(f"base_model: '{card.data.base_model}' is no repository of the hub, so it is not linked")
    left_out = sorted(path.name for path in _all_files(folder) if path not in files and path.name != CARD)
    notes += [f"not uploaded: {', '.join(left_out)}"] if left_out else []
    return Publication(folder, repo, files, f"{card}", entries, tuple(errors), tuple(notes))


def _all_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _uploaded(folder: Path) -> Iterator[Path]:
    """Yield the files of the model: safe formats, without the records that quote the data."""
    for path in _all_files(folder):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        is_record = any(path.match(pattern) for pattern in RECORDS)
        if any(path.match(pattern) for pattern in SAFE_FILES) and not is_hidden and not is_record:
            yield path


def _unsafe(folder: Path, files: tuple[Path, ...]) -> list[str]:
    found = []
    if not any(path.suffix == ".safetensors" or path.name == "summarizer.json" for path in files):
        found.append("no weights: there is no .safetensors; convert them with python -m downstream.encoders")
    model = ModelFolder(folder)
    if model.asks_for_code:
        found.append("config.json asks for code (auto_map), which nobody should run; remove the entry")
    if model.has_config and not any(path.name in {"tokenizer.json", "vocab.txt"} for path in files):
        found.append("there is no tokenizer; save it beside the weights")
    return found


def _data_licences(model: ModelFolder) -> dict[str, str]:
    """Return the licences of the data that a model was fine-tuned on, by task."""
    if not model.is_finetuned:
        return {}
    task = get_task(model.task_name)
    return {task.official_name: get_task(task.official_name).licence}


def _licence_errors(license_id: str, data: Mapping[str, str], accepted: tuple[str, ...]) -> list[str]:
    """Return what the licences of the data forbid.

    Whether weights are an adaptation of their data is open in law; here the strict reading decides, and who has a
    permission says so.
    """
    if not license_id or license_id in {"other", "unknown"}:
        return [f"license: '{license_id or 'none'}' in the card says nothing; give --license, e.g. cc-by-sa-4.0"]
    errors = []
    for task, licence in data.items():
        terms, allow = set(re.split(r"[\s-]+", licence.upper())), f"or give --accept {task} with a permission"
        if task in accepted:
            continue
        if "ND" in terms:
            errors.append(f"{task}: {licence} allows no adaptations to be shared; keep the model private, {allow}")
        if "NC" in terms and "-nc" not in license_id:
            errors.append(f"{task}: {licence} is for non-commercial use; give a licence with nc, {allow}")
        if "SA" in terms and not license_id.startswith("cc-by-sa"):
            errors.append(f"{task}: {licence} asks for the same licence; give --license cc-by-sa-4.0, {allow}")
    return errors


def _local_paths(folder: Path, files: tuple[Path, ...], card: str) -> list[str]:
    """Return files that name a folder of this machine."""
    texts = {CARD: card} | {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8", errors="replace")
        for path in files
        if path.suffix == ".json" and path.name != "tokenizer.json"
    }
    return [
        f"{name}: names a folder of this machine ({found[0]:.60}); remove it"
        for name, text in texts.items()
        if (found := LOCAL_PATH.search(text))
    ]


def _eval_results(card: Any) -> tuple[str, list[str]]:
    """Return the measured figures on official tasks as YAML, and notes on the others."""
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries, notes = [], []
    for result in card.data.eval_results or []:
        name = str(result.dataset_type)
        task = all_tasks().get(name)
        if task is None or not task.is_official or name not in HUB_DATASETS:
            notes.append(f"{name}: only in the card, because it is no official data set of the hub")
            continue
        is_first = result.metric_type == task.metrics[0].key
        if result.dataset_split not in {None, task.eval_split} or not is_first:
            notes.append(f"{name} {result.metric_type}: only in the card, because it does not rank")
            continue
        dataset, config = HUB_DATASETS[name]
        note = f"{result.metric_type} on {task.eval_split}, a fraction; measured with pressbert"
        entries.append(EvalResultEntry(dataset_id=dataset, task_id=config, value=result.metric_value, notes=note))
    if entries:
        notes.append(f"{EVAL_RESULTS}: {BENCHMARKS_ONLY}")
    text = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True) if entries else ""
    return text, notes


def write(publication: Publication, out: Path) -> None:
    """Write what would be uploaded to a folder that is empty or missing.

    Raises:
        ResultError: the folder is not empty, or cannot be written.
    """
    if out.is_dir() and any(out.iterdir()):
        raise ResultError(out, "the folder is not empty", "give another one with --out")
    for name, content in publication.contents():
        if isinstance(content, str):
            write_text(out / name, content)
        else:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content.read_bytes())


def push(publication: Publication, *, private: bool = False, api: Any = None) -> str:
    """Upload a publication in one commit; returns its address.

    Args:
        publication: without errors.
        private: whether a new repository is private.
        api: of `huggingface_hub`; default: one with the token of this user.

    Raises:
        UsageError: the publication has errors.
        ResultError: the hub refuses it, or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if publication.errors:
        raise UsageError("--push", publication.errors[0], "correct it, and look at the dry run again")
    hub = api or HfApi()
    try:
        hub.create_repo(publication.repo, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="pressbert-publish-") as folder:
            write(publication, Path(folder) / "model")
            message = "Upload a model of PressBERT"
            return str(
                hub.upload_folder(
                    repo_id=publication.repo, folder_path=str(Path(folder) / "model"), commit_message=message
                )
            )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ResultError(publication.repo, f"not uploaded ({reason})", "check the token (hf auth login)") from error


def describe(publication: Publication) -> str:
    """Return a publication as text: card, results, files, notes and errors."""
    lines = [f"{publication.repo}", "", f"--- {CARD}", publication.card.rstrip(), ""]
    if publication.eval_results:
        lines += [f"--- {EVAL_RESULTS}", publication.eval_results.rstrip(), ""]
    lines += ["--- files"]
    for path in publication.files:
        name, size = path.relative_to(publication.folder), path.stat().st_size
        lines.append(f"{sha256(path)[:16]}… {size:>12,} {name}")
    lines += ["", *(f"note: {note}" for note in publication.notes), *(f"error: {e}" for e in publication.errors)]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Publish from the command line; ends with 1 if something stands in the way."""
    parser = ArgumentParser("python -m downstream.publish", "Check a model folder, and upload it to the hub.")
    parser.add_argument("folder", type=Path, help="of a model that the suite saved")
    parser.add_argument("--repo", required=True, help="OWNER/NAME on the hub")
    parser.add_argument("--license", help="licence of the weights, e.g. cc-by-sa-4.0; default: the card's")
    parser.add_argument("--accept", action="append", default=[], metavar="TASK", help="you have a permission for it")
    parser.add_argument("--out", type=Path, help="write what would be uploaded")
    parser.add_argument("--private", action="store_true", help="a new repository is private")
    parser.add_argument("--push", action="store_true", help="upload; without it nothing leaves this machine")
    arguments = parser.parse(argv)
    found = prepare(arguments.folder, arguments.repo, license_id=arguments.license, accepted=tuple(arguments.accept))
    sys.stdout.write(f"{describe(found)}\n")
    if arguments.out:
        with alone(arguments.out):
            write(found, arguments.out)
    if arguments.push:
        sys.stdout.write(f"{push(found, private=arguments.private)}\n")
    else:
        sys.stderr.write("dry run: nothing was uploaded; --push uploads\n")
    return EXIT_FAILED_CELLS if found.errors else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
