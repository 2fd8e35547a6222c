"""Train sentence embeddings stage by stage with sentence-transformers' trainer; what is saved is its plain folder.

An interrupted run is continued by the same call: finished stages are kept, and within a stage the trainer's last
checkpoint is taken up, so that on a CPU it ends in the same bytes as a run in a piece. The state after the last step of
a stage is what goes on; nothing is selected by scores. The trainer's checkpoints hold PyTorch's own files beside
safetensors; they are read as tensors and nothing else, and the finished folder is free of them.

What is made for sentence-transformers runs unchanged on the finished folder: `mteb run -m DIR -t KorSTS KLUE-STS`.
"""

import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.foundation.errors import DataUnavailableError, RecipeError, ResultError, UsageError, cannot_write
from corpora.foundation.files import fingerprint, sha256, write_json, write_text
from corpora.foundation.machine import cpu_name, training_precision, versions
from corpora.official import data_root
from downstream.embeddings.embedder import Embedder, model_files
from downstream.embeddings.pipeline import open_sentence_transformer, quiet_transformers
from downstream.embeddings.pooling import default_device
from downstream.embeddings.recipe import EmbedRecipe, Rows, Stage, read_rows, text_key
from downstream.embeddings.similarity import LEXICAL, evaluate_split, lexical_split, similarity_task
from downstream.encoders.folder import PIPELINE_FILE
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.task import Split, Task
from pretraining.vocabulary.tokenizer import save_tokenizer

logger = logging.getLogger(__name__)

WORK = "stages"
"""Folder of finished stages and of checkpoints, until the run is finished."""
STAGE_FILE = "stage.json"
MANIFEST_FILE = "manifest.json"
METRICS_FILE = "metrics.jsonl"
SEEDS_BETWEEN = 1_000_003
"""Between the seeds of two stages, so that those of other runs are not met."""
SEEN_AT_MOST = 0.05
"""Share of a task's pairs that may be among the training rows; official splits share a few."""

Scores = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Exam:
    """What a model is scored on."""

    tasks: Mapping[str, tuple[Task, Split]]
    unavailable: Mapping[str, str]
    """Task → why it is not at hand."""

    def score(self, folder: Path) -> Scores:
        """Score a finished model on every task."""
        embedder = Embedder.load(folder)
        return {name: evaluate_split(task, split, embedder).metrics for name, (task, split) in self.tasks.items()}


def train_embedder(encoder: str | Path, recipe: EmbedRecipe, *, out: Path, data: Path | None = None) -> dict[str, Any]:
    """Train an embedder from an encoder, from wherever the run stands.

    Args:
        encoder: folder, hub id or known encoder; or a sentence-transformers folder, which is trained further.
        recipe: of `read_embed_recipe`.
        out: folder of the model, its card, `manifest.json` and `metrics.jsonl`.
        data: data root of tasks; default: `PRESSBERT_DATA` or the cache.

    Returns:
        The manifest: recipe, data, seeds, versions, times, and scores before training and after every stage.

    Raises:
        UsageError: the folder holds another finished run.
        RecipeError: the data do not fit their stages, or hold what the model is scored on.
        SuiteError: the encoder, the data or the folder is unusable.
    """
    folder, root = resolve(str(encoder)), data_root(data)
    exam = _read_exam(recipe.evaluate, root)
    # All data are read before anything is trained: what is missing is found out now, not after hours.
    rows = [read_rows(stage, root, f"stage {number}") for number, stage in enumerate(recipe.stages, start=1)]
    seen = _count_seen(exam, rows)
    base = {
        "encoder_sha256": sha256(*model_files(folder)),
        "max_length": recipe.max_length,
        "seed": recipe.seed,
        "precision": training_precision(),
        "versions": versions("torch", "transformers", "sentence-transformers", "tokenizers", "accelerate"),
    }
    plan = [
        {"stage": stage.model_dump(), "data_sha256": [source.sha256 for source in of_stage.sources]}
        for stage, of_stage in zip(recipe.stages, rows, strict=True)
    ]
    digest = fingerprint(base | {"plan": plan, "storage": recipe.storage})
    if (out / MANIFEST_FILE).is_file():
        manifest = _read_record(out / MANIFEST_FILE)
        if manifest.get("recipe_sha256") != digest:
            raise UsageError(out, "the folder holds the result of another run", "give another folder with --out")
        shutil.rmtree(out / WORK, ignore_errors=True)  # a kill can come just before
        logger.info("%s is finished", out)
        return manifest
    from safetensors import SafetensorError

    work = out / WORK
    try:
        with quiet_transformers():
            current = _prepare(folder, work / f"0-{fingerprint(base)[:12]}", recipe, exam)
            records = [_read_record(current / STAGE_FILE)]
            for number, (stage, of_stage) in enumerate(zip(recipe.stages, rows, strict=True), start=1):
                name = f"{number}-{fingerprint(base | {'plan': plan[:number]})[:12]}"
                current = _train_stage(current, work / name, stage, of_stage, number, recipe, exam)
                records.append(_read_record(current / STAGE_FILE))
            manifest = {
                "schema": 1,
                "recipe": recipe.model_dump(),
                "recipe_sha256": digest,
                "encoder": Path(str(encoder)).name,
                **base,
                "stages": records,
                "unavailable": dict(exam.unavailable),
                "seen_pairs": seen,
            }
            return _finish(current, out, recipe, exam, manifest)
    except (OSError, SafetensorError) as error:
        raise cannot_write(out, error) from error


def _read_exam(names: Sequence[str], root: Path) -> Exam:
    tasks, unavailable = {}, {}
    for name in names:
        task = similarity_task(name)
        try:
            tasks[task.name] = task, task.read_split(task.eval_split, root)
        except DataUnavailableError as error:
            unavailable[task.name] = str(error)
            logger.warning("not scored on %s: %s", task.name, error)
    return Exam(tasks, unavailable)


def _count_seen(exam: Exam, rows: Sequence[Rows]) -> dict[str, int]:
    """Count for each task the pairs that are trained on.

    Raises:
        RecipeError: they are more than official splits share.
    """
    counts = {}
    trained = {pair for of_stage in rows for pair in of_stage.pairs()}
    for name, (_, split) in exam.tasks.items():
        pairs = [frozenset((text_key(pair.text), text_key(pair.pair or ""))) for pair in split.examples]
        counts[name] = sum(pair in trained for pair in pairs)
        if counts[name] > SEEN_AT_MOST * len(pairs):
            what = f"{counts[name]:,} of the {len(pairs):,} pairs of {name} are trained on"
            raise RecipeError("evaluate", what, "take the task out of evaluate, or its data out of the stages")
    return counts


def _prepare(folder: Path, target: Path, recipe: EmbedRecipe, exam: Exam) -> Path:
    """Save the encoder with its pooling as a sentence-transformers folder: what the first stage begins with."""
    if (target / STAGE_FILE).is_file():
        return target
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    if (folder / PIPELINE_FILE).is_file():
        model: Any = open_sentence_transformer(folder, "cpu")
    else:
        with tempfile.TemporaryDirectory() as scratch:
            tokenizer = load_tokenizer(folder)
            # Through our loader, which knows the quirks of published encoders, into files without any.
            load_model(folder, tokenizer, "AutoModel", {}).save_pretrained(scratch)
            save_tokenizer(tokenizer, Path(scratch))
            encoder: Any = Transformer(scratch)
        pooling: Any = Pooling(encoder.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[encoder, pooling], device="cpu")
    model.max_seq_length = min(recipe.max_length, model.max_seq_length)
    return _save(model, target, {"kind": "start"}, exam)


def _save(model: Any, target: Path, record: dict[str, Any], exam: Exam) -> Path:
    """Save and score the model of a stage; its folder appears when it is whole."""
    with _new_folder(target.parent) as folder:
        _write_model(model, folder)
        write_json(folder / STAGE_FILE, record | {"scores": exam.score(folder)})
        folder.rename(target)
    return target


def _write_model(model: Any, folder: Path) -> None:
    model.save_pretrained(str(folder), create_model_card=False)
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


@contextlib.contextmanager
def _new_folder(parent: Path) -> Iterator[Path]:
    """Make a folder that is gone afterwards, unless it was renamed. What a kill left of an earlier one is removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in parent.glob(".new.*"):
        shutil.rmtree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=".new.", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ResultError(path, f"not what was written there ({error})", "delete the folder it is in") from error
    return record


def _train_stage(
    start: Path, target: Path, stage: Stage, rows: Rows, number: int, recipe: EmbedRecipe, exam: Exam
) -> Path:
    """Train a stage from the folder START to the folder TARGET, unless that is there already."""
    if (target / STAGE_FILE).is_file():
        return target
    from downstream.embeddings.trainer import run_stage

    seed = (recipe.seed + SEEDS_BETWEEN * number) % (1 << 32)
    model = open_sentence_transformer(start, default_device())
    # Named like the stage, so that only its own kind is continued.
    checkpoints = target.with_name(f"{target.name}-checkpoints")
    trained = run_stage(
        model,
        stage,
        rows,
        checkpoints=checkpoints,
        seed=seed,
        checkpoint_every=recipe.checkpoint_every,
        title=f"stage {number} ({stage.kind})",
    )
    record = {
        **stage.model_dump(),
        "sources": [vars(source) | {"left_out": dict(source.left_out)} for source in rows.sources],
        "num_rows": len(rows),
        "seed": seed,
        **trained,
    }
    _save(model, target, record, exam)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return target


def _finish(current: Path, out: Path, recipe: EmbedRecipe, exam: Exam, manifest: dict[str, Any]) -> dict[str, Any]:
    """Put the model of the last stage, its card and the manifest in place, and clear the work away."""
    model = open_sentence_transformer(current, "cpu")
    if recipe.storage == "float16":
        model = model.half()
    lines = []
    for number, record in enumerate(manifest["stages"]):
        log = record.pop("log", [])
        lines += [{"stage": number} | line for line in log]
        record["losses"] = [line["loss"] for line in log[:1] + log[-1:]]
    with _new_folder(out) as folder:
        _write_model(model, folder)
        manifest |= {
            "scores": exam.score(folder),
            "baselines": {
                measure: {name: lexical_split(*of_task, measure).metrics for name, of_task in exam.tasks.items()}
                for measure in LEXICAL
            },
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "dimension": model.get_embedding_dimension(),
            "train_s": round(sum(record.get("train_s", 0.0) for record in manifest["stages"]), 1),
            "device": _device_name(),
        }
        write_text(folder / "README.md", embedder_card(out.resolve().name, manifest, exam))
        write_text(folder / METRICS_FILE, "".join(json.dumps(line) + "\n" for line in lines))
        for path in folder.iterdir():
            if (out / path.name).is_dir():
                shutil.rmtree(out / path.name)
            path.replace(out / path.name)
    write_json(out / MANIFEST_FILE, manifest)
    shutil.rmtree(out / WORK, ignore_errors=True)
    return manifest


def _device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if default_device() == "cuda" else cpu_name()


def embedder_card(title: str, manifest: Mapping[str, Any], exam: Exam) -> str:
    """Return the README.md of a trained embedder, with the YAML that model hubs read."""
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    licences = sorted({source["licence"] for record in manifest["stages"] for source in record.get("sources", [])})
    listed = ", ".join(licence or "not stated" for licence in licences)
    licence = manifest["recipe"]["licence"]
    terms = {"license": licence.lower()} if licence else {"license": "other", "license_name": f"data: {listed}"}
    card = ModelCardData(
        language="ko",
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction"],
        model_name=title,
        eval_results=[
            EvalResult(
                task_type="sentence-similarity",
                dataset_type=name,
                dataset_name=task.title,
                dataset_split=task.eval_split,
                metric_type=f"cosine_{key}",
                metric_value=round(value, 6),
            )
            for name, (task, _) in exam.tasks.items()
            for key, value in manifest["scores"][name].items()
            if value is not None
        ],
        **terms,
    )
    lines = [
        f"# {title}",
        "",
        f"Korean sentence embeddings: {manifest['dimension']} dimensions, {manifest['num_parameters']:,} parameters, "
        f"texts up to {manifest['recipe']['max_length']} tokens, the mean of all token vectors.",
        f"Trained from `{manifest['encoder']}` by PressBERT.",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        'vectors = SentenceTransformer(".").encode(["첫 문장", "둘째 문장"], normalize_embeddings=True)',
        "```",
        "",
        "Or `from downstream.embed import encode`; or `mteb run -m . -t KorSTS KLUE-STS`.",
        "",
        "## Scores",
        "",
        *_score_table(manifest, exam),
        "",
        "Cosines against the annotators' scores, as fractions. TF-IDF and Jaccard see characters alone. F1 cuts the "
        "cosine at 0.6. One seed; nothing was selected by these scores.",
        *(f"- {name}: not scored, {reason}" for name, reason in manifest["unavailable"].items()),
        *(f"- {n:,} pairs of {name} are among the training data." for name, n in manifest["seen_pairs"].items() if n),
        "",
        "## Training",
        "",
        "| stage | data (licence) | rows | steps | last loss | minutes |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        *(_stage_line(number, record) for number, record in enumerate(manifest["stages"]) if number),
        "",
        f"Licences of the data: {listed}. That of the encoder comes on top: see its own card.",
        "",
        "## Limits · 한계",
        "",
        "Close in topic is not equal in meaning: texts that differ in a number, a name or a negation alone get nearly "
        "the same vector. Scores on short sentences say little about long articles; only their beginning is read.",
        "",
        "주제가 가까우면 뜻이 달라도 벡터가 가깝습니다. 숫자, 이름, 부정 표현만 다른 두 글은 "
        "거의 같은 벡터를 얻으므로 사실 확인에 쓸 수 없습니다. "
        "위 점수는 짧은 문장에서 잰 것이며, 긴 기사는 앞부분만 읽습니다.",
        "",
        "## Recipe",
        "",
        "```json",
        json.dumps(manifest["recipe"], ensure_ascii=False, indent=1),
        "```",
        "",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()) + ".",
        "",
    ]
    return str(ModelCard(f"---\n{card.to_yaml()}\n---\n\n" + "\n".join(lines)))


def _score_table(manifest: Mapping[str, Any], exam: Exam) -> list[str]:
    if not exam.tasks:
        return ["Not scored.", ""]
    stages: list[Mapping[str, Any]] = manifest["stages"]
    columns: dict[str, Scores] = {"before": stages[0]["scores"]}
    columns |= {f"after {number}": record["scores"] for number, record in enumerate(stages[1:-1], start=1)}
    columns |= {"**this model**": manifest["scores"]}
    columns |= {"TF-IDF": manifest["baselines"]["tfidf"], "Jaccard": manifest["baselines"]["jaccard"]}
    lines = [
        f"| task | split | metric | {' | '.join(columns)} |",
        "| --- | --- | --- |" + " ---: |" * len(columns),
    ]
    for name, (task, _) in exam.tasks.items():
        for metric in task.metrics:
            values = (scores[name][metric.key] for scores in columns.values())
            cells = " | ".join("undefined" if value is None else f"{value:.4f}" for value in values)
            lines.append(f"| {task.title} | {task.eval_split} | {metric.title} | {cells} |")
    return lines


def _stage_line(number: int, record: Mapping[str, Any]) -> str:
    data = ", ".join(f"{source['name']} ({source['licence'] or 'licence not stated'})" for source in record["sources"])
    figures = f"{record['num_rows']:,} | {record['num_steps']:,} | {record['losses'][-1]:.4f}"
    return f"| {number} {record['kind']} | {data} | {figures} | {record['train_s'] / 60:.1f} |"
