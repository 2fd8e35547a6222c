"""A study at work: the encoders of its arms made once, and the table of its cells.

Corpora, vocabularies and encoders lie under WORK by what they are made of, so that studies share what they have in
common, a finished part is never made again, and an interrupted one is gone on with.
"""

import contextlib
import fcntl
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.build import build, recipe_inputs
from corpora.corpus import corpus_files, corpus_texts, read_manifest
from corpora.runtime import fingerprint, sha256, validate, write_json
from corpora.sources import read_corpus_recipe
from downstream.encoders import resolve, weights_sha256_paths
from downstream.task import get_task
from eval.cells import Filler
from eval.models import ModelEntry
from eval.results import Table, build_table, find_cells
from eval.study_page import ArmRecord
from eval.study_recipe import QUARTERS, Study
from pretraining.dataset import prepare
from pretraining.recipe import DataConfig, Recipe
from pretraining.vocab import VocabConfig, save_tokenizer, train_wordpiece

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Plan:
    """An arm's pretraining, ready to run."""

    recipe: Recipe
    folder: Path
    first: "Plan | None" = None
    """A run before, from whose weights this one goes on."""


class StudyRun:
    """One study at work."""

    def __init__(self, study: Study, *, root: Path, work: Path, out: Path, num_workers: int, cpu: bool = False) -> None:
        """Take note of the task; nothing runs yet.

        Args:
            study: of `read_study`.
            root: data root.
            work: folder for corpora, vocabularies and encoders, which studies share.
            out: folder for results and page.
            num_workers: processes that prepare text.
            cpu: stay on the CPU although there is a GPU.
        """
        self.study, self.root, self.work, self.out = study, root, work, out
        self.num_workers, self.cpu = num_workers, cpu

    def make_encoders(self, arms: Sequence[str]) -> Iterator[ArmRecord]:
        """Yield arms as they are there; what another process is at work on is left to it, and waited for in the end.

        Raises:
            SuiteError: data or recipe are unusable, or the training diverged.
        """
        left = list(arms)
        while left:
            for arm in left:
                with contextlib.suppress(BlockingIOError):
                    yield self.make_encoder(arm, is_waiting=False)
                    left.remove(arm)
                    break
            else:
                yield self.make_encoder(left.pop(0))

    def make_encoder(self, arm: str, *, is_waiting: bool = True) -> ArmRecord:
        """Pretrain an arm, or what is left of it.

        Args:
            arm: its name.
            is_waiting: whether to wait for a process that is at work on it.

        Raises:
            SuiteError: data or recipe are unusable, or the training diverged.
            BlockingIOError: a process is at work on it, and IS_WAITING is false.
        """
        from pretraining.run import step_folder

        settings = self.study.arms[arm]
        if encoder := self.study.encoder_of(arm):
            weights = weights_sha256_paths(resolve(encoder))
            return ArmRecord(arm=arm, encoder=encoder, weights_sha256=sha256(*weights))
        plan = self.plan(arm)
        with _locked(plan.folder.with_suffix(".lock"), is_waiting=is_waiting):
            if settings.is_random:
                return ArmRecord(
                    arm=arm,
                    encoder=str(plan.folder),
                    recipe=plan.recipe.model_dump(),
                    num_parameters=self.save_first_weights(plan.recipe, plan.folder),
                )
            manifest = self._pretrain(plan)
            folder = plan.folder
            if settings.quarters < QUARTERS:
                folder = step_folder(folder, plan.recipe.loop.export_steps[settings.quarters - 1])
                manifest |= _read(folder / MANIFEST)
            scores = self._held_out(folder)
        return ArmRecord(
            arm=arm,
            encoder=str(folder),
            recipe=plan.recipe.model_dump(),
            num_parameters=manifest["num_parameters"],
            tokens=manifest["tokens"],
            elapsed_s=manifest["elapsed_s"],
            device=manifest["device"],
            held_out_loss=scores.get("mlm_loss"),
            held_out_accuracy=scores.get("mlm_accuracy"),
        )

    def _pretrain(self, plan: Plan) -> dict[str, Any]:
        """Run what is left of a plan; returns the manifest, with tokens and time of both phases if there are two."""
        from pretraining.run import pretrain

        recipe, before = plan.recipe, {}
        if plan.first:
            # Two arms may begin alike.
            with _locked(plan.first.folder.with_suffix(".lock")):
                before = self._pretrain(plan.first)
            model = recipe.model.model_copy(update={"init": str(plan.first.folder)})
            recipe = recipe.model_copy(update={"model": model})
        manifest = pretrain(recipe, plan.folder, cache=self._cache, num_workers=self.num_workers, cpu=self.cpu)
        return manifest | {key: manifest[key] + before.get(key, 0) for key in ("tokens", "elapsed_s")}

    @property
    def _cache(self) -> Path:
        return self.work / "rows"

    def _corpus(self, name: str = "") -> Path:
        recipe = read_corpus_recipe(name or self.study.corpus)
        sources, config = recipe_inputs(recipe, self.root)
        folder = self.work / f"corpus-{fingerprint([recipe.model_dump(), str(self.root.resolve())])[:12]}"
        with _locked(folder.with_suffix(".lock")):
            build(sources, folder, config)
        return folder

    def _vocabulary(self, config: VocabConfig, corpus: Path) -> Path:
        own = fingerprint([config.model_dump(), [shard.sha256 for shard in read_manifest(corpus).shards]])
        folder = self.work / f"vocabulary-{own[:12]}"
        with _locked(folder.with_suffix(".lock")):
            if not (folder / "tokenizer.json").is_file():
                texts = (text for file in corpus_files(corpus) for text in corpus_texts(file))
                settings = config.model_dump(include={"min_frequency", "limit_alphabet", "num_unused", "segmentation"})
                save_tokenizer(train_wordpiece(texts, config.vocab_size, **settings), folder)
        return folder

    def plan(self, arm: str) -> Plan:
        """Prepare an arm's rows, and return its recipe with the number of steps that its budget of tokens makes."""
        first, tokens = self.study.arms[arm].first, self.study.tokens_of(arm)
        if first is None:
            return self._plan(arm, tokens)
        before = self._plan(arm, first.tokens, is_first=True)
        return self._plan(arm, tokens - first.tokens, first=before)

    def _plan(self, arm: str, tokens: int, *, is_first: bool = False, first: Plan | None = None) -> Plan:
        corpus = self._corpus(self.study.arms[arm].corpus)
        tokenizer = self._vocabulary(self.study.vocabulary_of(arm), self._corpus())
        recipe = self.study.recipe_of(arm, corpus, tokenizer, is_first=is_first)
        with _locked(self.work / "rows.lock"):
            prepared = prepare(recipe, self._cache, num_workers=self.num_workers)
        tokens_per_step = recipe.loop.batch_size * prepared.num_tokens / len(prepared.feed.corpus)
        steps = math.ceil(tokens / tokens_per_step)
        changes: dict[str, Any] = {"steps": steps, "warmup_steps": round(self.study.warmup_share * steps)}
        # Of every run, so that one made for another study serves those who look at its course.
        changes["export_steps"] = [round(steps * k / QUARTERS) for k in range(1, QUARTERS)]
        recipe = recipe.model_copy(update={"loop": recipe.loop.model_copy(update=changes)})
        kind = "random" if self.study.arms[arm].is_random else "encoder"
        parts = [recipe.model_dump(exclude={"data": {"corpus", "tokenizer"}}), prepared.digest]
        own = fingerprint([*parts, first.folder.name] if first else parts)
        return Plan(recipe, self.work / f"{kind}-{own[:12]}", first)

    def save_first_weights(self, recipe: Recipe, folder: Path) -> int:
        """Save the first weights of a shape, and return the number of its parameters."""
        import torch
        from transformers import BertTokenizer

        from pretraining.machine import no_file_bars
        from pretraining.run import build_model

        prepared = prepare(recipe, self._cache, num_workers=self.num_workers)
        model = build_model(recipe, prepared)
        with torch.no_grad(), no_file_bars():
            network = model.export(dict(model.named_parameters()))
            network.save_pretrained(folder)
        save_tokenizer(BertTokenizer.from_pretrained(prepared.tokenizer), folder)
        return int(network.num_parameters())

    def _held_out(self, encoder: Path) -> dict[str, Any]:
        """Return the masked-LM scores on held-out text of the study's corpus; nothing without such a head.

        Rows are as long as those of the study, also for an arm that has learnt from others.
        """
        from pretraining.evaluate import evaluate_mlm

        corpus = self._corpus()
        path = encoder / f"held-out-{corpus.name}.json"
        if not path.is_file():
            architectures = _read(encoder / "config.json").get("architectures") or []
            has_head = any("MaskedLM" in name or "PreTraining" in name for name in architectures)
            is_told = has_head and any(corpus_files(corpus, "held-out"))
            max_length = validate(DataConfig, self.study.pretraining.get("data", {}), "data").max_length
            write_json(path, evaluate_mlm(encoder, corpus, max_length=max_length) if is_told else {})
        return _read(path)

    def entries(self, records: Sequence[ArmRecord]) -> list[ModelEntry]:
        """Return the arms as models of a leaderboard."""
        return [
            ModelEntry(
                name=record.arm,
                encoder=record.encoder,
                finetune=self.study.finetune | self.study.arms[record.arm].finetune,
            )
            for record in records
        ]

    def table(self, filler: Filler) -> Table:
        """Return rows and comparisons of the finished cells."""
        cells, _ = find_cells(self.out)
        return build_table(
            cells,
            filler.gaps,
            tasks=[get_task(name).name for name in self.study.tasks],
            models=list(self.study.arms),
            recipes=filler.recipes,
        )


def _read(path: Path) -> dict[str, Any]:
    """Read what a finished part has left."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@contextlib.contextmanager
def _locked(path: Path, *, is_waiting: bool = True) -> Iterator[None]:
    """Let one process at a time make a part that several may need."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
        yield
