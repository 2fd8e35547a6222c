"""The tokenization upper bound: the score of the gold labels after they are mapped to a model's tokens and back.

    python -m eval.ceiling --tasks klue-ner-devsplit korquad-devsplit --models pressbert-mini kpfbert --data DATA

Entities and answers are predicted as whole tokens. If one token holds a noun and its particle (서울에서), no model with
this tokenizer can mark the noun alone. The gold labels are therefore converted to the tokens of each model, decoded
like predictions, and scored, on the evaluation split of the leaderboard. Nothing is trained.

Exact match cannot exceed this bound. Entity F1 could: a model that leaves out the entities it cannot mark has fewer
false positives. But models are not trained to do so.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.official import data_root
from downstream.encoders.folder import ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.metrics import FloatArray
from downstream.task import Features, Split, Task, all_tasks, get_task
from eval.contestants.contestant import Contestant, choose_models, load_leaderboard
from pretraining.vocabulary.tokenizer import load_wordpiece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Ceiling:
    """The upper bound of a tokenizer on the evaluation split of a task."""

    scores: dict[str, float]
    """Metric → figure as a fraction."""
    tokens_per_eojeol: float
    """In the texts, or contexts; overlapping windows count once."""


def ceiling(task: Task, split: Split, tokenizer: "PreTrainedTokenizerBase") -> Ceiling:
    """Score the gold labels of SPLIT after mapping them to the tokens of TOKENIZER and back.

    Raises:
        UsageError: TASK labels whole texts, so that tokens set no bound.
    """
    if not isinstance(task.family, Tagging | SpanQA):
        known = " ".join(name for name, task in all_tasks().items() if isinstance(task.family, Tagging | SpanQA))
        raise UsageError("--tasks", f"the labels of {task.name} are not those of tokens", f"one of: {known}")
    max_length = min(task.finetune.max_length, tokenizer.model_max_length)
    features = task.family.featurize(split.examples, tokenizer, max_length, with_labels=True)
    predictions = task.family.decode([_one_hot(task.family, f) for f in features], features, split.examples)
    texts = list(
        dict.fromkeys(
            example.text if isinstance(task.family, Tagging) else example.context for example in split.examples
        )
    )
    num_tokens = sum(map(len, tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]))
    return Ceiling(
        {metric.key: metric(predictions, split.golds) for metric in task.metrics},
        num_tokens / sum(len(text.split()) for text in texts),
    )


def _one_hot(family: Tagging | SpanQA, feature: Features) -> FloatArray:
    """Return a window's gold labels as model outputs: (T, C) of tags, (2, T) of start and end."""
    num_tokens = len(feature["input_ids"])
    if isinstance(family, Tagging):
        scores = np.zeros((num_tokens, len(family.tags)))
        scores[np.arange(num_tokens), feature["labels"]] = 1
    else:
        scores = np.zeros((2, num_tokens))
        scores[0, feature["start_positions"]] = scores[1, feature["end_positions"]] = 1
    return scores


def open_tokenizer(model: Contestant) -> "PreTrainedTokenizerBase":
    """Open the tokenizer of a compared model; a folder made by `pretraining.vocab` will do.

    Raises:
        UsageError: the model reads no tokens.
        CheckpointError: the tokenizer is missing locally and not downloadable.
    """
    folder = model.folder() if model.reads_tokens else None
    if folder is None:
        raise UsageError("--models", f"'{model.name}' is not an encoder", "give encoders, or NAME=FOLDER")
    if ModelFolder(folder).has_config or not (folder / "tokenizer.json").is_file():
        return load_tokenizer(folder)
    return load_wordpiece(folder)


def table(rows: Sequence[tuple[Task, str, Ceiling]]) -> str:
    """Return a Markdown table, figures ×100."""
    lines = ["| task | model | tokens per eojeol | tokenization upper bound |", "| --- | --- | ---: | --- |"]
    for task, model, found in rows:
        figures = ", ".join(f"{metric.title} {100 * found.scores[metric.key]:.2f}" for metric in task.metrics)
        lines.append(f"| {task.name} | {model} | {found.tokens_per_eojeol:.2f} | {figures} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Run the command; see the module's docstring."""
    parser = ArgumentParser(
        "python -m eval.ceiling", "Score gold labels after tokenization: an upper bound for models."
    )
    parser.add_argument("--tasks", nargs="+", required=True, metavar="TASK", help="tasks of names or answers")
    parser.add_argument(
        "--models", nargs="+", required=True, metavar="MODEL", help="encoders, or NAME=FOLDER; a tokenizer will do"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the official data files")
    arguments = parser.parse(argv)
    entries = choose_models(arguments.models, load_leaderboard().models)
    tokenizers = {entry.name: open_tokenizer(entry) for entry in entries}
    root = data_root(arguments.data)
    rows = []
    for task in map(get_task, arguments.tasks):
        split = task.read_split(task.eval_split, root)
        rows += [(task, name, ceiling(task, split, tokenizer)) for name, tokenizer in tokenizers.items()]
    sys.stdout.write(table(rows))
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
