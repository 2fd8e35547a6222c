"""Run a study: pretrain the encoder of every arm once, and collect the table of its cells.

Corpora, vocabularies and encoders are stored under WORK by a digest of what they are made of. Studies share them, a
finished one is never made again, and an interrupted one is resumed.
"""

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.build import build, recipe_inputs
from corpora.corpus import corpus_files, corpus_texts, read_manifest
from corpora.foundation.config import validate
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import fingerprint, locked, parse_signed, write_signed
from corpora.sources import read_corpus_recipe
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.task import get_task
from eval.board.rows import Table, build_table
from eval.cells.archive import ARMS
from eval.cells.files import find_cells
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.contestant import Cell
from eval.contestants.encoder import Encoder
from eval.studies.page import ArmRecord
from eval.studies.recipe import QUARTERS, Study
from pretraining.recipe import DataConfig, Recipe
from pretraining.training.dataset import prepare
from pretraining.vocabulary.tokenizer import load_wordpiece, save_tokenizer
from pretraining.vocabulary.wordpiece import VocabConfig, train_wordpiece

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Plan:
    """An arm's pretraining, ready to run."""

    recipe: Recipe
    folder: Path
    first: "Plan | None" = None
    """The run whose weights this one starts from."""


class StudyRun:
    """One study, its folders and its settings on this machine."""

    def __init__(
        self,
        study: Study,
        *,
        root: Path,
        work: Path,
        out: Path,
        num_workers: int,
        cpu: bool = False,
        elsewhere: Sequence[Path] = (),
    ) -> None:
        """Store the settings; nothing runs yet.

        Args:
            study: of `read_study`.
            root: data root.
            work: folder for corpora, vocabularies and encoders, which studies share.
            out: folder of the results and the page.
            num_workers: processes that prepare text.
            cpu: stay on the CPU although there is a GPU.
            elsewhere: folders of other studies; their arms and cells of the same recipe are reused.
        """
        self.study, self.root, self.work, self.out = study, root, work, out
        self.num_workers, self.cpu, self.elsewhere = num_workers, cpu, list(elsewhere)

    def make_encoders(self, arms: Sequence[str]) -> Iterator[ArmRecord]:
        """Yield arms as they are finished; an arm that another process is running is left to it and comes last.

        Raises:
            SuiteError: data or recipe are unusable, or the training diverged.
        """
        pending = list(arms)
        while pending:
            for arm in pending:
                with contextlib.suppress(BlockingIOError):
                    yield self.make_encoder(arm, is_waiting=False)
                    pending.remove(arm)
                    break
            else:
                yield self.make_encoder(pending.pop(0))

    def make_encoder(self, arm: str, *, is_waiting: bool = True) -> ArmRecord:
        """Pretrain an arm, or the rest of it; an arm whose cells are all finished is not pretrained.

        Args:
            arm: its name.
            is_waiting: whether to wait for another process that runs it.

        Raises:
            SuiteError: data or recipe are unusable, or the training diverged.
            BlockingIOError: another process runs it, and IS_WAITING is false.
        """
        settings = self.study.arms[arm]
        if encoder := self.study.encoder_of(arm):
            return _existing(arm, encoder)
        plan = self.plan(arm)
        if record := self.finished(arm, plan):
            return record
        with locked(plan.folder.with_suffix(".lock"), is_waiting=is_waiting):
            folder = self._folder(arm, plan)
            if settings.is_random:
                facts: dict[str, Any] = {"num_parameters": self.save_random_weights(plan.recipe, folder)}
            else:
                manifest = self._pretrain(plan)
                if settings.quarters < QUARTERS:
                    manifest |= _read(folder / MANIFEST)
                facts = {key: manifest[key] for key in ("num_parameters", "tokens", "elapsed_s", "device")}
                facts["precision"] = "bf16" if manifest["precision"] == "bf16" else "fp32"
                scores = self._held_out(folder)
                facts |= {f"held_out_{key}": scores.get(f"mlm_{key}") for key in ("loss", "accuracy")}
                facts["held_out_bits_by_source"] = scores.get("mlm_bits_per_character_by_source", {})
        record = ArmRecord(
            arm=arm,
            encoder=folder.relative_to(self.work).as_posix(),
            encoder_sha256=ModelFolder(folder).digest(),
            recipe=_without_paths(plan.recipe),
            **facts,
        )
        write_signed(self.out / ARMS / f"{arm}.json", record.model_dump())
        return record

    def made(self, arm: str) -> ArmRecord | None:
        """Return the encoder of an arm if it is finished, here or in another study; otherwise None.

        Raises:
            SuiteError: data or recipe are unusable.
        """
        if encoder := self.study.encoder_of(arm):
            return _existing(arm, encoder)
        plan = self.plan(arm)
        if record := self.finished(arm, plan):
            return record
        folder = self._folder(arm, plan)
        # The last file that a run writes; random weights have no manifest.
        is_random = self.study.arms[arm].is_random
        if not (ModelFolder(folder).has_config if is_random else (folder / MANIFEST).is_file()):
            return None
        name = folder.relative_to(self.work).as_posix()
        digest = ModelFolder(folder).digest()
        return ArmRecord(arm=arm, encoder=name, encoder_sha256=digest, recipe=_without_paths(plan.recipe))

    def finished(self, arm: str, plan: Plan) -> ArmRecord | None:
        """Return the record of an arm whose cells are all finished, whether its encoder still exists or not.

        Arms that are checkpoints of one run are reused all or none, and only from this study: the same run on another
        machine differs in the last digits.
        """
        together = self.study.same_run(arm)
        found = {name: self._record_of_finished(name, plan, is_single=len(together) == 1) for name in together}
        if not all(found.values()):
            return None
        return found[arm]

    def _record_of_finished(self, arm: str, plan: Plan, *, is_single: bool) -> ArmRecord | None:
        encoder = self._folder(arm, plan).relative_to(self.work).as_posix()
        folders = [self.out, *(self.elsewhere if is_single else [])]
        for path in (path for folder in folders for path in sorted((folder / ARMS).glob("*.json"))):
            record = _read_record(path)
            if record is None or record.encoder != encoder:
                continue
            record = record.model_copy(update={"arm": arm})
            if self._is_scored(record):
                write_signed(self.out / ARMS / f"{arm}.json", record.model_dump())
                return record
        return None

    def _is_scored(self, record: ArmRecord) -> bool:
        runner = CellRunner(self.cells([record]), root=self.root, out=self.out, elsewhere=self.elsewhere)
        return not runner.unfinished() and not runner.failed

    def _folder(self, arm: str, plan: Plan) -> Path:
        """Return the folder of an arm's encoder: the end of its run, or one of its checkpoints."""
        from pretraining.training.run import step_folder

        quarters = self.study.arms[arm].quarters
        is_complete = quarters == QUARTERS
        return plan.folder if is_complete else step_folder(plan.folder, plan.recipe.loop.export_steps[quarters - 1])

    def _pretrain(self, plan: Plan) -> dict[str, Any]:
        """Run the rest of a plan; returns the manifest, with tokens and time summed over its phases."""
        from pretraining.training.run import Run

        recipe, before = plan.recipe, {}
        if plan.first:
            # Two arms may share their first phase.
            with locked(plan.first.folder.with_suffix(".lock")):
                before = self._pretrain(plan.first)
            model = recipe.model.model_copy(update={"init": str(plan.first.folder)})
            recipe = recipe.model_copy(update={"model": model})
        run = Run(recipe, plan.folder, cache=self._cache, num_workers=self.num_workers, cpu=self.cpu)
        manifest = run.train()
        return manifest | {key: manifest[key] + before.get(key, 0) for key in ("tokens", "elapsed_s")}

    @property
    def _cache(self) -> Path:
        return self.work / "rows"

    def _corpus(self, name: str = "") -> Path:
        recipe = read_corpus_recipe(name or self.study.corpus)
        sources, config = recipe_inputs(recipe, self.root)
        folder = self.work / f"corpus-{fingerprint([recipe.model_dump(), str(self.root.resolve())])[:12]}"
        with locked(folder.with_suffix(".lock")):
            build(sources, folder, config)
        return folder

    def _vocabulary(self, config: VocabConfig, corpus: Path) -> Path:
        own = fingerprint([config.model_dump(), [shard.sha256 for shard in read_manifest(corpus).shards]])
        folder = self.work / f"vocabulary-{own[:12]}"
        with locked(folder.with_suffix(".lock")):
            if not (folder / "tokenizer.json").is_file():
                texts = (text for file in corpus_files(corpus) for text in corpus_texts(file))
                settings = config.model_dump(include={"min_frequency", "limit_alphabet", "num_unused", "segmentation"})
                save_tokenizer(train_wordpiece(texts, config.vocab_size, **settings), folder)
        return folder

    def plan(self, arm: str) -> Plan:
        """Prepare an arm's rows, and return its recipe with the number of steps for its budget of tokens."""
        first, tokens = self.study.arms[arm].first, self.study.tokens_of(arm)
        if first is None:
            return self._plan(arm, tokens)
        before = self._plan(arm, first.tokens, is_first=True)
        return self._plan(arm, tokens - first.tokens, first=before)

    def _plan(self, arm: str, tokens: int, *, is_first: bool = False, first: Plan | None = None) -> Plan:
        corpus = self._corpus(self.study.arms[arm].corpus)
        tokenizer = self._vocabulary(self.study.vocabulary_of(arm), self._corpus())
        recipe = self.study.recipe_of(arm, corpus, tokenizer, is_first=is_first)
        with locked(self.work / "rows.lock"):
            prepared = prepare(recipe, self._cache, num_workers=self.num_workers)
        tokens_per_step = recipe.loop.batch_size * prepared.num_tokens / len(prepared.train.corpus)
        steps = math.ceil(tokens / tokens_per_step)
        changes: dict[str, Any] = {"steps": steps, "warmup_steps": round(self.study.warmup_share * steps)}
        # In every run, so that studies of its checkpoints can reuse a run of another study.
        changes["export_steps"] = [round(steps * k / QUARTERS) for k in range(1, QUARTERS)]
        recipe = recipe.model_copy(update={"loop": recipe.loop.model_copy(update=changes)})
        kind = "random" if self.study.arms[arm].is_random else "encoder"
        parts = [recipe.model_dump(exclude={"data": {"corpus", "tokenizer"}}), prepared.digest]
        own = fingerprint([*parts, first.folder.name] if first else parts)
        return Plan(recipe, self.work / f"{kind}-{own[:12]}", first)

    def save_random_weights(self, recipe: Recipe, folder: Path) -> int:
        """Save a randomly initialized encoder, and return the number of its parameters."""
        import torch

        from corpora.foundation.machine import no_file_bars
        from pretraining.training.run import Run

        run = Run(recipe, folder, cache=self._cache, num_workers=self.num_workers)
        model = run.build_model()
        with torch.no_grad(), no_file_bars():
            network = model.export(dict(model.named_parameters()))
            network.save_pretrained(folder)
        save_tokenizer(load_wordpiece(run.data.tokenizer), folder)
        return int(network.num_parameters())

    def _held_out(self, encoder: Path) -> dict[str, Any]:
        """Return the MLM scores on held-out text of the study's corpus; empty without an MLM head.

        Rows have the study's length, also for an arm that was pretrained on longer rows; an arm that was pretrained on
        shorter ones reads no longer ones.
        """
        from pretraining.evaluate import evaluate_mlm

        corpus = self._corpus()
        by_source = self.study.is_by_source
        path = encoder / f"held-out-{corpus.name}{'-by-source' if by_source else ''}.json"
        if not path.is_file():
            architectures = ModelFolder(encoder).architectures
            has_head = any("MaskedLM" in name or "PreTraining" in name for name in architectures)
            is_scored = has_head and any(corpus_files(corpus, "held-out"))
            max_length = validate(DataConfig, self.study.pretraining.get("data", {}), "data").max_length
            max_length = min(max_length, ModelFolder(encoder).max_positions or max_length)
            scores = evaluate_mlm(encoder, corpus, max_length=max_length, by_source=by_source) if is_scored else {}
            write_signed(path, scores)
        return _read(path)

    def entries(self, records: Sequence[ArmRecord]) -> list[Encoder]:
        """Return the arms as models of a leaderboard."""
        return [
            Encoder(
                name=record.arm,
                encoder=str(self.work / record.encoder) if record.recipe else record.encoder,
                encoder_sha256=record.encoder_sha256,
                finetune=self.study.finetune_of(record.arm),
                task_finetune={task: self.study.finetune_of(record.arm, task) for task in self.study.task_finetune},
            )
            for record in records
        ]

    def cells(self, records: Sequence[ArmRecord]) -> list[Cell]:
        """Return the cells of arms, task by task."""
        return [
            cell
            for name in self.study.tasks
            for cell in plan_cells(
                self.entries([record for record in records if name in self.study.tasks_of(record.arm)]),
                [get_task(name)],
                self.study.seeds,
            )
        ]

    def table(self, runner: CellRunner) -> Table:
        """Return rows and comparisons of the finished cells."""
        cells, _ = find_cells(self.out)
        return build_table(
            cells,
            runner.failed,
            tasks=[get_task(name).name for name in self.study.tasks],
            models=list(self.study.arms),
            recipes=runner.recipes,
        )


def _existing(arm: str, encoder: str) -> ArmRecord:
    """Return the record of an arm with an existing encoder."""
    return ArmRecord(arm=arm, encoder=encoder, encoder_sha256=ModelFolder(resolve(encoder)).digest())


def _without_paths(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe for a record: corpus and tokenizer by the names of their folders."""
    values = recipe.model_dump()
    for name in ("corpus", "tokenizer"):
        values["data"][name] = Path(values["data"][name]).name
    return values


def _read_record(path: Path) -> ArmRecord | None:
    """Return the record of an arm; None, with a warning, if it cannot be read, so that its arm is made again."""
    try:
        return validate(ArmRecord, dict(_read(path)), path)
    except (OSError, ValueError, TypeError, SuiteError) as error:
        logger.warning("%s: not a record of an arm (%s); ignored", path, error)
        return None


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON file of a finished part."""
    return parse_signed(path.read_text(encoding="utf-8"))
