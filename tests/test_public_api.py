"""What others import and call: these names, parameters and commands stay where they are, however the inside moves."""

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FUNCTIONS = {
    "downstream.summarize.summarize": "article sentences ratio max_chars title focus explain",
    "downstream.summarize.Summarizer.load": "source runtime",
    "downstream.summarize.Summarizer.summarize": "self article sentences ratio max_chars title focus explain",
    "downstream.summarize.Summarizer.summarize_many": "self articles sentences ratio max_chars focus explain",
    "downstream.headline.headline": "article model count",
    "downstream.embed.encode": "texts model batch_size progress",
    "downstream.embed.Embedder.load": "source device",
    "downstream.embed.Embedder.encode": "self texts batch_size progress",
    "downstream.finetune.finetune": "task encoder out model seed data overrides",
    "downstream.finetune.load_finetuned": "folder",
    "downstream.finetune.predict": "model tokenizer family examples max_length batch_size",
    "downstream.classify.classify": "texts model",
    "downstream.classify.Classifier.load": "folder runtime threads",
    "downstream.classify.Classifier.probabilities": "self texts",
    "downstream.classify.Classifier.weigh": "self text label",
    "downstream.classify.Classifier.is_cut": "self text",
    "downstream.fill_mask.MaskFiller.load": "folder",
    "downstream.fill_mask.MaskFiller.fill": "self text num_candidates",
    "downstream.answer.Reader.load": "folder runtime threads",
    "downstream.answer.Reader.answer": "self question passage",
    "downstream.answer.SentenceFinder.answer": "self question passage",
    "downstream.moderate.moderate": "text headline precision",
    "downstream.moderate.soften": "text headline precision",
    "downstream.moderate.Moderator.load": "folder encoder",
    "downstream.stance.stance": "text title",
    "downstream.advertorial.advertorial": "text title",
    "downstream.clickbait.clickbait": "title text encode",
    "apps.desk.changes": "old new",
    "apps.desk.examine": "text title archive",
    "downstream.runtime.Predictor.load": "folder runtime threads root",
    "downstream.runtime.Predictor.predict": "self examples",
    "downstream.runtime.fast_embedder": "embedder runtime threads root",
    "downstream.task.TextExample": "id text pair label",
    "downstream.task.get_task": "name",
    "downstream.metrics.bootstrap_ci95": "metric columns seed rounds clusters",
    "downstream.metrics.accuracy": "predictions golds",
    "corpora.documents.read_documents": "path fields text_unit rejected",
    "corpora.sentences.split_sentences": "text",
    "apps.clustering.cluster": "articles config embedder reducer clusterer labeller",
    "apps.clustering.find_duplicates": "texts points config",
    "apps.clustering.ClusteringConfig": "values",
    "pressbert.estimators.EmbeddingTransformer": "model batch_size is_int8",
    "pressbert.estimators.SummaryTransformer": "model sentences ratio max_chars",
    "pressbert.estimators.TextClassifier": "model",
    "pressbert.estimators.StoryClusterer": "min_size min_log_odds join_similarity attach_similarity routine model",
    "pressbert.estimators.noun_terms": "text",
}
"""Dotted name → the first parameters that it takes, by name; others may follow."""

COMMANDS = [
    "corpora.build",
    "pretraining.vocab",
    "pretraining.run",
    "pretraining.evaluate",
    "downstream.finetune",
    "downstream.grid",
    "downstream.distill",
    "downstream.encoders",
    "downstream.extractive",
    "downstream.runtime",
    "downstream.summarize",
    "downstream.headline",
    "downstream.embed",
    "downstream.bundle",
    "eval.run_all",
    "eval.study",
    "eval.reference",
    "eval.contamination",
    "eval.ceiling",
    "apps.summarize",
    "apps.clustering",
    "apps.stories",
    "apps.serve",
    "apps.desk",
    "downstream.moderate",
    "downstream.stance",
    "downstream.advertorial",
    "downstream.clickbait",
]
"""What is run as `python -m NAME`."""


def find(name: str) -> object:
    """Return what a dotted name stands for: the longest importable module, and attributes of it."""
    parts = name.split(".")
    found: object = importlib.import_module(".".join(parts[:2]))
    for part in parts[2:]:
        found = getattr(found, part)
    return found


def test_public_functions_take_what_they_took() -> None:
    for name, expected in FUNCTIONS.items():
        found = find(name)
        assert callable(found), name
        if name.endswith("Config"):
            continue  # fields of a pydantic model are keyword-only and checked by its own tests
        parameters = list(inspect.signature(found).parameters)
        wanted = expected.split()
        if wanted[0] == "self":
            assert parameters[0] == "self", name
        assert parameters[: len(wanted)] == wanted, f"{name} takes {parameters}"


def test_every_command_is_a_module_that_runs() -> None:
    for name in COMMANDS:
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        if spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            assert spec is not None, name
        source = Path(spec.origin or "").read_text(encoding="utf-8")
        assert "run_command(main)" in source, name


@pytest.mark.parametrize("path", ["eval/run_all.py", "apps/demo.py"])
def test_files_that_are_run_by_path_are_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_leaderboard_is_run_by_its_path_from_any_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "eval" / "run_all.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--models" in done.stdout
