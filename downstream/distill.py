"""Distil fine-tuned models: a student with fewer of its teacher's layers learns the teacher's logits on its task.

    python -m downstream.distill runs/nsmc --out runs/nsmc-student
    python -m downstream.distill runs/nsmc --out runs/nsmc-student --unlabelled comments.txt.gz --set layers=3
    python -m downstream.distill runs/seed-0 runs/seed-1 --out runs/better --unlabelled reviews.txt.gz --set layers=4
    python -m downstream.distill runs/large-sts --student ENCODER --out runs/small-sts --unlabelled pairs.jsonl \
        --logits runs/logits

The student starts from the (first) teacher's embeddings, head and every n-th layer, the first and the last included.
With `--student` it is another encoder, of any architecture and vocabulary, with the task's settings. From several
teachers of one task it learns the mean of their logits. With all the layers, several teachers and many unlabelled texts
the student can score higher than each of its teachers: self-training.

Unlabelled texts contribute to the soft and cosine losses; with `ngram_weight` the log-probabilities of a logistic
regression over character n-grams, trained on the training split, are added to their logits. For a task of pairs they
are records with the columns `text` and `pair`. Texts that occur in the evaluation split are left out. With `--logits`
further seeds read what the teachers computed for the first. The student's folder has the layout of
`downstream.finetune`. Running the command again continues. The losses and their sources are in
`downstream.finetuning.distillation`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import RecipeError, UsageError
from corpora.official import data_root
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.finetuning.arguments import parse_overrides
from downstream.finetuning.batches import trained_examples
from downstream.finetuning.distillation import (
    TEACHER_LOGITS,
    DistillConfig,
    Teacher,
    TeacherEnsemble,
    distillation_loss,
    read_unlabelled,
    unlabelled_features,
)
from downstream.finetuning.method import TrainingMethod
from downstream.finetuning.result import RESULT_FILE, Result, read_result
from downstream.finetuning.trainer import TrainingRun, finetune_recipe, train_and_evaluate
from downstream.task import Features, FinetuneConfig, Task, TaskData, TextExample, get_task, read_task

__all__ = ["DistillConfig", "distill", "main", "student_config"]


def distill(
    teacher: str | Path,
    *further: str | Path,
    out: Path,
    student: str | Path | None = None,
    model: str | None = None,
    seed: int = 0,
    data: TaskData | Path | None = None,
    unlabelled: Sequence[Path] = (),
    logits: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Result:
    """Train a student of a fine-tuned TEACHER on the teacher's task, and score it on the task's evaluation split.

    Args:
        teacher: folder that `downstream.finetune` saved, or the hub id of one.
        further: more teachers of the same task; all have the same weight.
        out: folder for the student, its card and `result.json`; an unfinished run there is continued.
        student: encoder that the student starts from: folder, hub id, or known encoder; default: layers of TEACHER.
        model: name in the result; default: the teacher's, followed by the number of layers, or the student's.
        seed: of data order and dropout, and of the head of a student of its own; no other weight starts at random.
        data: the task's splits if already read, or the data root; default: `PRESSBERT_DATA` or the cache.
        unlabelled: files of `corpora.documents`; in plain text every line is one text.
        logits: folder in which the teachers' logits stay for further runs; default: they are deleted with the
            checkpoints.
        overrides: fields of `DistillConfig` that differ from the defaults, or the teacher's fine-tuning.

    Returns:
        The scored result, as saved in OUT.

    Raises:
        SuiteError: a teacher, the student, the data or the folder is unusable.
    """
    folders = [resolve(str(each)) for each in (teacher, *further)]
    task = get_task(ModelFolder(folders[0]).task_name)
    result = _result_of(folders[0])
    own = None if student is None else resolve(str(student))
    first = None if own else Teacher(folders[0])
    if first is None:
        config = student_config(task, overrides or {})
    else:
        # A teacher may itself be a student: its distillation settings are not passed on.
        settings = result.recipe.get("finetune", {}) if result else {}
        known = {key: value for key, value in settings.items() if key in FinetuneConfig.model_fields}
        config = _validated(task, known | dict(overrides or {}))
        config = config.model_copy(update={"layers": first.num_layers(config.layers)})
    if hasattr(task.family, "loss"):
        what = f"{task.title}: its outputs are no probabilities of labels"
        raise UsageError("teacher", what, "give a teacher of another task")
    splits = data if isinstance(data, TaskData) else read_task(task, data_root(data))
    start = own or folders[0]
    name = model or (
        f"{result.model if result else start.resolve().name}-{config.layers}l" if first else Path(str(student)).name
    )
    recipe = finetune_recipe(task, name, ModelFolder(start).digest(), config, splits)
    texts: list[TextExample] = []
    if unlabelled:
        texts, counts = read_unlabelled(task, unlabelled, splits)
        recipe["unlabelled"] = counts.model_dump()
    labelled = trained_examples(task, splits.train.examples, config, seed)
    ensemble = TeacherEnsemble(folders, labelled, texts, config, has_own_student=own is not None, kept=logits)
    recipe |= ensemble.recipe(task)
    method = _method(task, first, ensemble, texts, config, folders=folders, start=start)
    return train_and_evaluate(TrainingRun(task, start, out, seed, splits, config, recipe, method))


def student_config(task: Task, overrides: Mapping[str, Any]) -> DistillConfig:
    """Return the settings of a student that is another encoder than its teachers.

    Args:
        task: the teachers'.
        overrides: fields of `DistillConfig` that differ from the task's own and from the defaults.

    Raises:
        RecipeError: a setting is unknown, out of range, or one that such a student cannot have.
    """
    config = _validated(task, {"cosine_weight": 0.0, **overrides})
    where = "distillation"
    if config.layers is not None:
        raise RecipeError(where, f"layers={config.layers}: the student has its own", "leave it out")
    if config.cosine_weight:
        what = f"cosine_weight={config.cosine_weight:g}: student and teacher have different tokens"
        raise RecipeError(where, what, "leave it out")
    return config


def _validated(task: Task, values: Mapping[str, Any]) -> DistillConfig:
    """Return the task's settings with other VALUES.

    Raises:
        RecipeError: a setting is unknown, out of range, or one that no student can have.
    """
    config = validate(DistillConfig, task.finetune.model_dump() | dict(values), f"{task.name} distillation")
    where = "distillation"
    if config.features != "none":
        what = f"features={config.features}: a student has its teacher's head"
        raise RecipeError(where, what, "leave it out")
    if config.micro_batch_size is not None:
        what = f"micro_batch_size={config.micro_batch_size}: its losses are means over the tokens of a batch"
        raise RecipeError(where, what, "leave it out, and lower batch_size if memory is short")
    return config


def _method(
    task: Task,
    teacher: Teacher | None,
    ensemble: TeacherEnsemble,
    texts: Sequence[TextExample],
    config: DistillConfig,
    *,
    folders: Sequence[Path],
    start: Path,
) -> TrainingMethod:
    """Return how a student is trained; TEACHER is the one whose layers it starts from."""

    def prepare(features: list[Features], cache: Path) -> list[Features]:
        tokenizer = teacher.tokenizer if teacher else load_tokenizer(start)
        max_length = min(config.max_length, tokenizer.model_max_length)
        features = [*features, *unlabelled_features(texts, task.family, tokenizer, max_length)]
        if not ensemble.is_needed:
            return features
        logits = ensemble.logits(task, cache)  # (N, C)
        return [feature | {TEACHER_LOGITS: row} for feature, row in zip(features, logits.tolist(), strict=True)]

    also = f", also trained on {len(texts):,} unlabelled texts" if texts else ""
    command = "python -m downstream.distill" + " TEACHER" * len(folders) + " --unlabelled FILE" * bool(texts)
    if teacher is None:
        names = [result.model if (result := _result_of(folder)) else folder.resolve().name for folder in folders]
        return TrainingMethod(
            prepare=prepare,
            loss=lambda student, batch: distillation_loss(task.family, student, batch, config),
            description=f"Fine-tuned on the outputs of {', '.join(dict.fromkeys(names))}{also}",
            command=f"{command} --student ENCODER",
        )
    return TrainingMethod(
        build=lambda *_: teacher.student(config),
        prepare=prepare,
        loss=lambda student, batch: teacher.loss(student, batch, config),
        description=f"A student with {config.layers} of its teacher's {teacher.depth} layers"
        + (f", of {len(folders)} teachers" if len(folders) > 1 else "")
        + also,
        command=command,
    )


def _result_of(folder: Path) -> Result | None:
    """Return a teacher's result; a published folder may lack it."""
    return read_result(folder / RESULT_FILE) if (folder / RESULT_FILE).is_file() else None


def main(argv: list[str] | None = None) -> int:
    """Distil a fine-tuned model from the command line; prints the scores as JSON."""
    parser = ArgumentParser(
        "python -m downstream.distill", "Train a student of fine-tuned models, smaller or of the same size."
    )
    parser.add_argument(
        "teachers",
        nargs="+",
        metavar="TEACHER",
        help="folder made by python -m downstream.finetune; the student starts from the first",
    )
    parser.add_argument("--student", metavar="ENCODER", help="encoder that the student starts from instead")
    parser.add_argument("--out", type=Path, required=True, help="folder for the student")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument(
        "--unlabelled", type=Path, nargs="+", default=[], metavar="FILE", help="texts without labels to learn from"
    )
    parser.add_argument(
        "--logits", type=Path, metavar="FOLDER", help="keep the teachers' logits here; further seeds read them"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, e.g. --set layers=2"
    )
    arguments = parser.parse(argv)
    result = distill(
        *arguments.teachers,
        out=arguments.out,
        student=arguments.student,
        seed=arguments.seed,
        data=arguments.data,
        unlabelled=arguments.unlabelled,
        logits=arguments.logits,
        overrides=parse_overrides(arguments.set),
    )
    teachers = [_result_of(resolve(teacher)) for teacher in arguments.teachers]
    scores = [teacher.metrics if teacher else None for teacher in teachers]
    line = {"task": result.task, "metrics": result.metrics, "teachers": scores}
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
