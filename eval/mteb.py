"""Score a sentence embedder, or any encoder with mean pooling, with mteb's own classes on its Korean tasks.

    python -m eval.mteb MODEL --data DATA --out reports
    python -m eval.mteb MODEL --benchmark "MTEB(kor, v2)"        # needs a network
    python -m eval.mteb MODEL --prompt "query: "

Offline, the tasks of mteb read the official files under DATA instead of a hub: the examples, the metrics and the result
files are mteb's. Files that are missing are named and their tasks left out. ParaKQC is no task of mteb; it is defined
here with mteb's class for retrieval. Result files are written to OUT/mteb in mteb's layout, beside our own results.

Needs the extra `eval-mteb`. Source: Muennighoff et al. 2023, MTEB; Enevoldsen et al. 2025, MMTEB.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, ArgumentParser, run_command
from corpora.foundation.errors import DataUnavailableError, UsageError, suggest
from corpora.official import data_root
from downstream.embeddings.embedder import Embedder
from downstream.encoders.hub import BUNDLED_SOURCE
from downstream.families.retrieval import RetrievalExample
from downstream.readers import pick, read_json_rows
from downstream.task import get_task

FOLDER = "mteb"
"""Of the result files, below OUT."""
NLI_IDS = {"entailment": 0, "neutral": 1, "contradiction": 2}
"""Ids of KLUE-NLI's labels on the hub, which mteb's task expects."""
Rows = list[dict[str, Any]]


class MtebEncoder:
    """An embedder of ours with the interface of mteb's encoders."""

    def __init__(self, embedder: Embedder, name: str, prompt: str = "") -> None:
        """Wrap EMBEDDER.

        Args:
            embedder: computes unit vectors.
            name: in the result files.
            prompt: written before every text, such as `query: `.
        """
        import mteb

        self._embedder, self._prompt = embedder, prompt
        facts = {
            "name": name if "/" in name else f"local/{name}",
            "revision": embedder.sha256[:12],
            "n_parameters": embedder.num_parameters,
            "embed_dim": embedder.dimension,
            "max_tokens": float(embedder.max_length),
        }
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(overwrites=facts)

    def encode(self, inputs: Any, **_options: Any) -> Any:
        """Return float32 (N, D) for batches of texts; every text gets the same prompt."""
        return self._embedder.encode([self._prompt + text for batch in inputs for text in batch["text"]])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosines of all pairs, float (N, M): vectors are of unit length."""
        import torch

        return torch.from_numpy(np.atleast_2d(np.asarray(embeddings1)) @ np.atleast_2d(np.asarray(embeddings2)).T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of each pair, float (N,)."""
        import torch

        return torch.from_numpy((np.asarray(embeddings1) * np.asarray(embeddings2)).sum(axis=-1))


def _official(name: str, split: str, root: Path) -> Path:
    task = get_task(name)
    return task.path(split, root)


def _klue_sts(root: Path) -> Any:
    path = _official("klue-sts", "dev", root)
    columns = ("sentence1", "sentence2", "labels")
    rows = [{c: pick(row, c, where, object) for c in columns} for where, row in read_json_rows(path)]
    return _filled("KLUE-STS", rows, "validation")


def _klue_nli(root: Path) -> Any:
    examples = get_task("klue-nli").read(_official("klue-nli", "dev", root))
    rows = [{"premise": e.text, "hypothesis": e.pair, "label": NLI_IDS[e.label]} for e in examples]
    return _filled("KLUE-NLI", rows, "validation")


def _korsts(root: Path) -> Any:
    examples = get_task("korsts").read(_official("korsts", "test", root))
    return _filled("KorSTS", [{"sentence1": e.text, "sentence2": e.pair, "score": e.label} for e in examples], "test")


def _paws_x(root: Path) -> Any:
    task = get_task("paws-x")
    examples = task.read(_official("paws-x", "dev", root))
    rows = [{"sentence1": e.text, "sentence2": e.pair, "labels": int(e.label == "paraphrase")} for e in examples]
    return _filled("PawsXPairClassification", rows, "validation", subset="ko")


def _parakqc(root: Path) -> Any:
    examples: list[RetrievalExample] = get_task("parakqc").read(_official("parakqc", "test", root))
    return retrieval_task("ParaKQC", examples)


LOCAL_TASKS: Mapping[str, Callable[[Path], Any]] = {
    "KLUE-STS": _klue_sts,
    "KLUE-NLI": _klue_nli,
    "KorSTS": _korsts,
    "PawsXPairClassification": _paws_x,
    "ParaKQC": _parakqc,
}
"""Name of a task → the task with the examples of a local file."""


def _filled(name: str, rows: Rows, split: str, *, subset: str | None = None) -> Any:
    """Return mteb's task NAME with ROWS as its only split; what mteb does to examples of the hub is done to them."""
    import datasets
    import mteb

    choice: dict[str, Any] = {"hf_subsets": [subset]} if subset else {}
    task = mteb.get_task(name, eval_splits=[split], **choice)
    splits = datasets.DatasetDict({split: datasets.Dataset.from_list(rows)})
    task.dataset = {subset: splits} if subset else splits
    task.dataset_transform()
    task.data_loaded = True
    return task


def retrieval_task(name: str, examples: Sequence[RetrievalExample]) -> Any:
    """Return a task of mteb in which the texts of a group are to find each other.

    Args:
        name: of the task.
        examples: texts with their groups.
    """
    import datasets
    import mteb

    groups: dict[str, list[str]] = {}
    for example in examples:
        groups.setdefault(str(example.label), []).append(example.id)
    about = mteb.abstasks.task_metadata.TaskMetadata(
        name=name,
        description="Korean questions and commands; the texts that mean the same are to be found.",
        dataset={"path": f"local/{name}", "revision": "1"},
        type="Retrieval",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["kor-Hang"],
        main_score="mrr_at_10",
    )
    kind = type(name, (mteb.abstasks.AbsTaskRetrieval,), {"metadata": about, "ignore_identical_ids": True})
    task = kind()
    texts = datasets.Dataset.from_list([{"id": example.id, "text": example.text} for example in examples])
    relevant = {id_: dict.fromkeys((o for o in ids if o != id_), 1) for ids in groups.values() for id_ in ids}
    split = {"queries": texts, "corpus": texts, "relevant_docs": relevant, "top_ranked": None}
    task.dataset = {"default": {"test": split}}
    task.data_loaded = True
    return task


def local_tasks(names: Sequence[str], root: Path) -> tuple[list[Any], dict[str, str]]:
    """Return the tasks whose files are under ROOT, and why the others are left out.

    Raises:
        UsageError: a name is unknown.
        DataError: a file is damaged.
    """
    tasks, missing = [], {}
    for name in names:
        if name not in LOCAL_TASKS:
            raise UsageError("--tasks", f"'{name}' has no local files", suggest(name, LOCAL_TASKS))
        try:
            tasks.append(LOCAL_TASKS[name](root))
        except DataUnavailableError as error:
            missing[name] = str(error)
    return tasks, missing


def evaluate(encoder: MtebEncoder, tasks: Sequence[Any], out: Path) -> list[dict[str, Any]]:
    """Run TASKS and write mteb's result files; returns task, split, main score and metric of each.

    Args:
        encoder: what is scored.
        tasks: of mteb, with or without examples.
        out: folder of the leaderboard; finished tasks in it are not run again.
    """
    import mteb

    found = mteb.evaluate(
        encoder,
        tasks,
        co2_tracker=False,
        cache=mteb.ResultCache(cache_path=out / FOLDER),
        show_progress_bar=sys.stderr.isatty(),
    )
    return [
        {
            "task": result.task_name,
            "split": split,
            "metric": next(task.metadata.main_score for task in tasks if task.metadata.name == result.task_name),
            "value": round(float(np.mean([scores["main_score"] for scores in subsets])), 6),
        }
        for result in found.task_results
        for split, subsets in result.scores.items()
    ]


def _benchmark_tasks(name: str) -> list[Any]:
    """Return the tasks of a benchmark of mteb.

    Raises:
        UsageError: there is none of that name, or downloads are forbidden.
    """
    import mteb

    known = [benchmark.name for benchmark in mteb.get_benchmarks()]
    if name not in known:
        raise UsageError("--benchmark", f"'{name}' is unknown to mteb {mteb.__version__}", suggest(name, known))
    if os.environ.get("HF_HUB_OFFLINE", "0") not in {"", "0"}:
        raise UsageError("--benchmark", "HF_HUB_OFFLINE forbids downloads", "unset it, or leave --benchmark out")
    return list(mteb.get_benchmark(name).tasks)


def main(argv: list[str] | None = None) -> int:
    """Score a model from the command line; prints a line of JSON for each task."""
    parser = ArgumentParser("python -m eval.mteb", "Score an embedder with mteb's own classes on Korean tasks.")
    parser.add_argument("model", help="embedder or encoder: folder, hub id or known encoder; `bundled` for ours")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help=f"of {', '.join(LOCAL_TASKS)}; default: all")
    parser.add_argument("--benchmark", metavar="NAME", help='instead, a benchmark that is downloaded: "MTEB(kor, v2)"')
    parser.add_argument("--prompt", default="", help="written before every text, e.g. 'query: '")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder to write (default: reports)")
    arguments = parser.parse(argv)
    _check_installed()
    if arguments.benchmark and arguments.tasks:
        raise UsageError("--benchmark", "it has tasks of its own", "leave --tasks out")
    missing: dict[str, str] = {}
    if arguments.benchmark:
        tasks = _benchmark_tasks(arguments.benchmark)
    else:
        tasks, missing = local_tasks(arguments.tasks or list(LOCAL_TASKS), data_root(arguments.data))
    for name, why in missing.items():
        sys.stderr.write(f"{name}: unavailable: {why}\n")
    if tasks:
        source = None if arguments.model == BUNDLED_SOURCE else arguments.model
        embedder = Embedder.load(source)
        name = "pressbert/embedder" if source is None else str(Path(source).resolve().name)
        for row in evaluate(MtebEncoder(embedder, name, arguments.prompt), tasks, arguments.out):
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    return EXIT_FAILED_CELLS if missing else EXIT_DONE


def _check_installed() -> None:
    """Raise UsageError if mteb is not installed."""
    import importlib.util

    if importlib.util.find_spec("mteb") is None:
        raise UsageError("eval.mteb", "mteb is not installed", "pip install 'pressbert[eval-mteb]'")


if __name__ == "__main__":
    run_command(main)
