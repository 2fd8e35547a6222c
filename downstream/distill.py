"""Distil fine-tuned models: a student with fewer of its teacher's layers learns the teacher's answers on its task.

    python -m downstream.distill runs/nsmc --out runs/nsmc-student
    python -m downstream.distill runs/nsmc --out runs/nsmc-student --unlabelled comments.txt.gz --set layers=3
    python -m downstream.distill runs/seed-0 runs/seed-1 --out runs/better --unlabelled reviews.txt.gz --set layers=4

The student begins with the (first) teacher's embeddings, head and every n-th layer, the first and the last among them.
Of several teachers of one task the mean of the logits is learned. With all the layers, several teachers and many texts
without labels the student may become better than each of its teachers: self-training.

| term | of | weight |
| --- | --- | --- |
| soft | T² · KL(teacher ‖ student), both softened by the temperature T; squared difference of scores | `soft_weight` |
| hard | what fine-tuning minimises, where there is a label | `hard_weight` |
| cosine | 1 − cosine of the last hidden states, tokens of text and special ones | `cosine_weight` |

Texts without labels give soft and cosine; `ngram_weight` lets a logistic regression over character n-grams, learned on
the training split, speak of them too. Those that also stand in the evaluation split are left out. The folder is one of
`downstream.finetune`: all that takes a fine-tuned model takes a student. Running the command again continues.

Source: Sanh et al. 2019, “DistilBERT, a distilled version of BERT”, section 3 (a second distillation in fine-tuning);
layers, weights of soft and hard, and temperature as in the authors' code, huggingface/transformers-research-projects.
Hinton et al. 2015, section 2.1, for matching the logits on texts without labels, and 5.3 for several teachers; Xie et
al. 2020, “Self-training with Noisy Student improves ImageNet classification”, for students as large as their teachers.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import Config, validate
from corpora.foundation.errors import CheckpointError, RecipeError, UsageError
from corpora.foundation.files import sha256
from corpora.foundation.machine import no_file_bars
from corpora.official import data_root
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.weights import load_model
from downstream.families.classification import Classification, Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.finetune import (
    NO_LABEL,
    RESULT_FILE,
    Lesson,
    TaskData,
    complete,
    finetune_recipe,
    load_finetuned,
    outputs_of,
    parse_overrides,
    read_task,
    some_of,
)
from downstream.finetuning.result import Result, read_result
from downstream.task import Family, Features, FinetuneConfig, Task, TextExample, shared_texts

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

GOAL = "goal"
"""Column of a training example: the logits to be learned."""
NEVER = -1e4
"""Score of a place that cannot be an answer."""


class DistillConfig(FinetuneConfig):
    """How a student is trained; what `FinetuneConfig` has is the teacher's own unless it is set."""

    layers: int | None = Field(default=None, ge=1)
    """Of the student; None: half of the teacher's."""
    temperature: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    soft_weight: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    hard_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    cosine_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    ngram_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Of the log-probabilities by character n-grams, which are added to the teachers' mean for texts without labels.

    Of those with labels they know nothing but the labels, by heart.
    """


class Unlabelled(Config):
    """Texts without labels that a student was trained on as well."""

    sha256: str
    """Of the files' bytes, in the order given."""
    num_texts: int
    num_left_out: int
    """Texts that also stand in the evaluation split, in the training split, or twice."""


def distill(
    teacher: str | Path,
    *further: str | Path,
    out: Path,
    model: str | None = None,
    seed: int = 0,
    data: TaskData | Path | None = None,
    unlabelled: Sequence[Path] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Result:
    """Train a student of a fine-tuned TEACHER on the teacher's task, and score it on the task's evaluation split.

    Args:
        teacher: folder that `downstream.finetune` saved, or the hub id of one.
        further: more of the same task, whose answers count as much as the first one's.
        out: folder for the student, its card and `result.json`; an unfinished run there is continued.
        model: name in the result; default: the teacher's with the number of layers behind it.
        seed: of data order and dropout; nothing of a student begins at random.
        data: the task's splits if already read, or the data root; default: `PRESSBERT_DATA` or the cache.
        unlabelled: files of `corpora.documents`; in plain text every line is one.
        overrides: fields of `DistillConfig` that differ from the teacher's fine-tuning and the defaults.

    Returns:
        The scored result, as saved in OUT.

    Raises:
        SuiteError: a teacher, the data or the folder is unusable.
    """
    folder = resolve(str(teacher))
    teaching = Teaching(folder)
    task, taught = teaching.task, _result_of(folder)
    values = task.finetune.model_dump() | (taught.recipe.get("finetune", {}) if taught else {})
    # A student may be a teacher in its turn: what it was distilled by is its own affair.
    values = {key: value for key, value in values.items() if key in FinetuneConfig.model_fields}
    config = validate(DistillConfig, values | dict(overrides or {}), f"{task.name} distillation")
    if config.features != "none":
        raise RecipeError(
            "distillation", f"features={config.features}: a student has its teacher's head", "leave it out"
        )
    config = config.model_copy(update={"layers": teaching.num_layers(config.layers)})
    splits = data if isinstance(data, TaskData) else read_task(task, data_root(data))
    name = model or f"{taught.model if taught else folder.resolve().name}-{config.layers}l"
    recipe = finetune_recipe(task, name, ModelFolder(folder).digest(), config, splits)
    labelled = some_of(splits.train.examples, config.train_examples)
    texts: list[str] = []
    if unlabelled:
        texts, counts = _read_unlabelled(task, unlabelled, splits)
        recipe["unlabelled"] = counts.model_dump()
    council = _Council([folder, *(resolve(str(other)) for other in further)], labelled, texts, config)
    recipe |= council.recipe(task)

    def prepare(features: list[Features], workshop: Path) -> list[Features]:
        max_length = min(config.max_length, teaching.tokenizer.model_max_length)
        features = [*features, *_features_of(texts, task.family, teaching.tokenizer, max_length)]
        if not council.is_needed:
            return features
        goals = council.goals(task, workshop)  # (N, C)
        return [feature | {GOAL: goal} for feature, goal in zip(features, goals.tolist(), strict=True)]

    lesson = Lesson(
        begin=lambda *_: teaching.student(config),
        prepare=prepare,
        loss=lambda student, batch: teaching.loss(student, batch, config),
        about=f"A student with {config.layers} of its teacher's {teaching.depth} layers"
        + (f", of {1 + len(further)} teachers" if further else "")
        + (f", taught with {len(texts):,} further texts" if texts else ""),
        command="python -m downstream.distill TEACHER" + " TEACHER" * len(further) + " --unlabelled FILE" * bool(texts),
    )
    return complete(task, folder, out=out, seed=seed, splits=splits, config=config, recipe=recipe, lesson=lesson)


class Teaching:
    """A teacher, and what its students are made of and measured by."""

    def __init__(self, folder: Path) -> None:
        """Load a fine-tuned folder.

        Raises:
            CheckpointError: it is none, or its layers cannot be taken apart.
        """
        from transformers import PreTrainedModel

        self._folder = folder
        with no_file_bars():
            model, self.tokenizer, self.task = load_finetuned(folder)
        layers = getattr(getattr(model.base_model, "encoder", None), "layer", None)
        if layers is None or not isinstance(model, PreTrainedModel):
            what = f"the layers of a {model.config.model_type} cannot be left out one by one"
            raise CheckpointError(folder, what, "give a fine-tuned BERT, RoBERTa or ELECTRA")
        self.depth = len(layers)
        """Number of the teacher's layers."""
        teacher: Any = model  # annotates only parts of itself
        self._model = teacher.eval().requires_grad_(requires_grad=False)

    def num_layers(self, wanted: int | None) -> int:
        """Return how many layers a student has.

        Raises:
            RecipeError: more than the teacher.
        """
        if wanted is not None and wanted > self.depth:
            raise RecipeError("distillation", f"layers={wanted}, the teacher has {self.depth}", "set fewer")
        return wanted or max(1, self.depth // 2)

    def student(self, config: DistillConfig) -> Any:
        """Return a model with some of the teacher's layers and all else that it has."""
        from torch import nn

        family = self.task.family
        model = load_model(self._folder, self.tokenizer, family.auto_class, family.head_config())
        encoder = model.base_model.encoder
        encoder.layer = nn.ModuleList(encoder.layer[k] for k in kept_layers(self.depth, config.layers or 1))
        model.config.num_hidden_layers = len(encoder.layer)
        return model

    def loss(self, student: Any, batch: "dict[str, Tensor]", config: DistillConfig) -> "Tensor":
        """Return the weighted sum of soft, hard and cosine loss.

        Args:
            student: in training.
            batch: its inputs (B, T) with labels; `NO_LABEL` where there is none. With `GOAL`, float (B, C), that is
                what is learned in place of this teacher's own answers.
            config: weights and temperature.
        """
        import torch
        import torch.nn.functional as F  # noqa: N812

        family, mask = self.task.family, batch["attention_mask"]
        taught = batch.get(GOAL)
        batch = {name: rows for name, rows in batch.items() if name != GOAL}
        pupil: Any = _Watched(student)
        logits = family.logits(pupil, batch)  # (B, …)
        if taught is None or config.cosine_weight:
            inputs = {name: batch[name] for name in self.tokenizer.model_input_names}
            teacher: Any = _Watched(self._model.to(mask.device))
            with torch.no_grad():
                own = family.logits(teacher, inputs)
            taught = own if taught is None else taught
        total = config.soft_weight * soft_loss(family, logits, taught, mask, config.temperature)
        if config.hard_weight and _has_labels(batch):
            total = total + config.hard_weight * pupil.outputs.loss
        if config.cosine_weight:
            states, goal = (watched.outputs.hidden_states[-1].float() for watched in (pupil, teacher))  # (B, T, D)
            cosine = F.cosine_similarity(states, goal, dim=-1)[mask.bool()]  # (N,)
            total = total + config.cosine_weight * (1 - cosine).mean()
        return total


class _Council:
    """Teachers whose answers are put together once, before the first step."""

    def __init__(
        self, folders: Sequence[Path], labelled: Sequence[TextExample], texts: Sequence[str], config: DistillConfig
    ) -> None:
        """Take note of who speaks, and of what.

        Raises:
            UsageError: n-grams have nothing to speak of.
        """
        if config.ngram_weight and not texts:
            what = "n-grams speak of texts without labels alone, and there are none"
            raise UsageError("ngram_weight", what, "give some with --unlabelled, or leave ngram_weight out")
        self._folders, self._labelled, self._texts, self._config = folders, labelled, texts, config

    @property
    def is_needed(self) -> bool:
        """Whether anyone but the first teacher speaks; that one can be asked while the student learns."""
        return len(self._folders) > 1 or self._config.ngram_weight > 0

    def recipe(self, task: Task) -> dict[str, Any]:
        """Return what the others add to the recipe of a student.

        Raises:
            UsageError: another teacher knows another task, or the task's answers are no rows of fixed length.
        """
        further = self._folders[1:]
        if not further:
            return {}
        if not isinstance(task.family, Classification | Regression):
            what = f"{task.title} is not answered for a text as a whole"
            raise UsageError("teachers", what, "give a single one")
        for folder in further:
            if (other := load_finetuned(folder)[2]).name != task.name:
                what = f"it was fine-tuned on {other.name}, the first teacher on {task.name}"
                raise UsageError(folder, what, "give teachers of one task")
        return {"further_teachers_sha256": [ModelFolder(folder).digest() for folder in further]}

    def goals(self, task: Task, workshop: Path) -> "npt.NDArray[np.float32]":
        """Return the logits (N, C) to be learned, labelled examples first; what is found once is kept in WORKSHOP."""
        family, config = task.family, self._config
        examples = [*self._labelled, *(TextExample("", text, None, "") for text in self._texts)]
        goals: Any = 0
        for number, folder in enumerate(self._folders):
            goals = goals + self._kept(workshop / f"teacher-{number}.safetensors", folder, examples)
        goals = goals / len(self._folders)
        if config.ngram_weight:
            from downstream.finetuning.ngrams import NgramClassifier

            assert isinstance(family, Classification)  # others have no texts without labels
            logger.info("n-grams …")
            ngrams = NgramClassifier([e.text for e in self._labelled], [str(e.label) for e in self._labelled])
            goals[len(self._labelled) :] += config.ngram_weight * ngrams.log_probabilities(self._texts, family.labels)
        found: npt.NDArray[np.float32] = goals.astype(np.float32)
        return found

    def _kept(self, path: Path, folder: Path, examples: Sequence[TextExample]) -> "npt.NDArray[np.float32]":
        """Return one teacher's logits (N, C), from the file if it is there."""
        import torch
        from safetensors.numpy import load_file, save_file

        if not path.is_file():
            model, tokenizer, task = load_finetuned(folder)
            model.to("cuda" if torch.cuda.is_available() else "cpu")
            max_length = min(self._config.max_length, tokenizer.model_max_length)
            features = task.family.featurize(examples, tokenizer, max_length, with_labels=False)
            rows = outputs_of(model, tokenizer, task.family, features, title=f"teacher {folder.name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed when it is whole.
            save_file({GOAL: np.stack(rows).astype(np.float32)}, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        return load_file(path)[GOAL]


class _Watched:
    """A model whose last outputs can be looked at."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.outputs: Any = None

    def __call__(self, **inputs: Any) -> Any:
        self.outputs = self._model(**inputs, output_hidden_states=True)
        return self.outputs


def kept_layers(depth: int, count: int) -> list[int]:
    """Return which of DEPTH layers a student of COUNT begins with: evenly spread, the first and the last among them.

    Of 12 layers these are 0, 2, 4, 7, 9 and 11, as in the authors' code.
    """
    if count == 1:
        return [0]
    return [round(k * (depth - 1) / (count - 1)) for k in range(count)]


def soft_loss(family: Family, logits: Any, taught: Any, mask: "Tensor", temperature: float) -> "Tensor":
    """Return how far a student's answers are from its teacher's, for a mean example (or token, for tags).

    Args:
        family: of the task; it says what the logits are.
        logits: float (B, …), the student's.
        taught: float of the same shape, the teacher's.
        mask: int64 (B, T), 0 for padding.
        temperature: by which both are softened; no part of scores.
    """
    import torch.nn.functional as F  # noqa: N812

    logits, taught = logits.float(), taught.float()
    if isinstance(family, Regression):
        return F.mse_loss(logits, taught)
    if isinstance(family, SpanQA):
        is_padding = mask[:, None, :] == 0  # (B, 1, T)
        logits, taught = logits.masked_fill(is_padding, NEVER), taught.masked_fill(is_padding, NEVER)
    divergence = F.kl_div(
        F.log_softmax(logits / temperature, -1),
        F.log_softmax(taught / temperature, -1),
        reduction="none",
        log_target=True,
    ).sum(-1)  # (B,), (B, 2) or (B, T)
    if isinstance(family, Tagging):
        divergence = divergence[mask.bool()]
    return divergence.mean() * temperature**2


def _has_labels(batch: "Mapping[str, Tensor]") -> bool:
    """Whether any example has a label; the mean over none is no number."""
    labels = batch.get("labels")
    return labels is None or bool((labels != NO_LABEL).any())


# --- texts without labels ---------------------------------------------------------------------------------------------


def _read_unlabelled(task: Task, paths: Sequence[Path], splits: TaskData) -> tuple[list[str], Unlabelled]:
    """Read texts, without those that the task's own splits hold.

    Raises:
        UsageError: the task does not classify single texts.
        DataError: a file cannot be read.
    """
    examples = splits.train.examples
    if not isinstance(task.family, Classification) or not examples or examples[0].pair is not None:
        what = f"{task.title} is no classification of single texts"
        raise UsageError("--unlabelled", what, "leave the option out")
    # A text of the evaluation split must not be studied, not even without its label.
    seen = {key for split in (splits.eval, splits.train) for example in split.examples for key in shared_texts(example)}
    texts, num_left_out = [], 0
    for text in _texts_of(paths):
        key = "".join(text.split())
        if key in seen:
            num_left_out += 1
            continue
        seen.add(key)
        texts.append(text)
    logger.info("%d texts without labels, %d left out", len(texts), num_left_out)
    return texts, Unlabelled(sha256=sha256(*paths), num_texts=len(texts), num_left_out=num_left_out)


def _texts_of(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        for document in read_documents(path, text_unit="line"):
            yield document.text


def _features_of(
    texts: Sequence[str], family: Family, tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> list[Features]:
    examples = [TextExample("", text, None, "") for text in texts]
    features = family.featurize(examples, tokenizer, max_length, with_labels=False) if examples else []
    return [feature | {"labels": NO_LABEL} for feature in features]


# --- the command ------------------------------------------------------------------------------------------------------


def _result_of(folder: Path) -> Result | None:
    """Return what a teacher scored; a published folder may have come without."""
    return read_result(folder / RESULT_FILE) if (folder / RESULT_FILE).is_file() else None


def main(argv: list[str] | None = None) -> int:
    """Distil a fine-tuned model from the command line; prints the scores as JSON."""
    parser = ArgumentParser(
        "python -m downstream.distill", "Train a student of fine-tuned models, smaller or as large."
    )
    parser.add_argument(
        "teachers",
        nargs="+",
        metavar="TEACHER",
        help="folder that python -m downstream.finetune made; the student begins with the first",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the student")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument(
        "--unlabelled", type=Path, nargs="+", default=[], metavar="FILE", help="texts without labels to learn from"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, e.g. --set layers=2"
    )
    arguments = parser.parse(argv)
    result = distill(
        *arguments.teachers,
        out=arguments.out,
        seed=arguments.seed,
        data=arguments.data,
        unlabelled=arguments.unlabelled,
        overrides=parse_overrides(arguments.set),
    )
    taught = [_result_of(resolve(teacher)) for teacher in arguments.teachers]
    told = [teacher.metrics if teacher else None for teacher in taught]
    line = {"task": result.task, "metrics": result.metrics, "teachers": told}
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
