"""Experiments, repeatable: pretrain the arms of a study, fine-tune each on its tasks, test, and write the page.

    python -m eval.study NAME --data ROOT [--dry-run]
    python -m eval.study NAME --data ROOT --shard 2/8      # a share of the cells; the table afterwards, without --shard
    python -m eval.study NAME --data ROOT --dry-run --set tokens=2_000_000_000 --set pretraining.model.hidden_size=768

Corpora, vocabularies and encoders lie under WORK by what they are made of, so that studies share what they have in
common, a finished part is never made again, and an interrupted one is gone on with. OUT/NAME holds the results in the
leaderboard's own form, and the page in Korean and English; a score that another study under OUT has got of the same
encoder in the same way is taken over. `--publish docs/studies` begins with the cells that are there already, and puts
page, chart and cells there in the end.
"""

import contextlib
import fcntl
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.build import build, recipe_inputs
from corpora.corpus import corpus_files, corpus_texts, read_manifest
from corpora.official import data_root
from corpora.runtime import (
    EXIT_DONE,
    EXIT_FAILED_CELLS,
    ArgumentParser,
    UsageError,
    fingerprint,
    run_command,
    sha256,
    write_json,
)
from corpora.sources import read_corpus_recipe
from downstream.encoders import resolve, weights_sha256_paths
from downstream.task import get_task
from eval.archive import ARCHIVE, pack, restore
from eval.cells import Filler, plan_cells, share_of
from eval.manifest import fold_manifest
from eval.models import ModelEntry
from eval.report import write_leaderboard
from eval.results import LeaderboardFile, Table, build_table, find_cells
from eval.study_page import ArmRecord, write_page
from eval.study_recipe import Study, read_study
from pretraining.dataset import prepare
from pretraining.estimate import measure
from pretraining.recipe import Recipe
from pretraining.vocab import VocabConfig, save_tokenizer, train_wordpiece

MANIFEST = "manifest.json"
QUARTERS = 4
"""Into which a run is divided: after each it leaves its model."""


@dataclass(frozen=True)
class Plan:
    """An arm's pretraining, ready to run."""

    recipe: Recipe
    folder: Path


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
        self._num_workers, self._cpu = num_workers, cpu
        self._estimated: set[Path] = set()

    def make_encoder(self, arm: str) -> ArmRecord:
        """Pretrain an arm, or what is left of it.

        Raises:
            SuiteError: data or recipe are unusable, or the training diverged.
        """
        from pretraining.run import pretrain, step_folder

        settings = self.study.arms[arm]
        if encoder := self.study.encoder_of(arm):
            weights = weights_sha256_paths(resolve(encoder))
            return ArmRecord(arm=arm, encoder=encoder, weights_sha256=sha256(*weights))
        plan = self._plan(arm)
        with _locked(plan.folder.with_suffix(".lock")):
            if settings.is_random:
                return self._random(arm, plan)
            manifest = pretrain(
                plan.recipe, plan.folder, cache=self._cache, num_workers=self._num_workers, cpu=self._cpu
            )
            folder = plan.folder
            if settings.quarters < QUARTERS:
                folder = step_folder(folder, plan.recipe.loop.export_steps[settings.quarters - 1])
                manifest |= _read(folder / MANIFEST)
            scores = self._held_out(folder, plan.recipe.data.max_length)
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

    def estimate(self, arm: str) -> dict[str, Any]:
        """Return how long an arm's pretraining will take and what it needs, from two steps of it."""
        settings = self.study.arms[arm]
        nothing = {"arm": arm, "steps": 0, "training_s": 0.0, "disk_bytes": 0, "memory_bytes": 0}
        if self.study.encoder_of(arm) or settings.is_random:
            return nothing | {"device": ""}
        plan = self._plan(arm)
        if (plan.folder / MANIFEST).is_file():
            return nothing | {"device": "done"}
        if plan.folder in self._estimated:
            return nothing | {"device": "the same run"}
        self._estimated.add(plan.folder)
        estimate = measure(plan.recipe, num_workers=self._num_workers, cpu=self._cpu)
        return {
            "arm": arm,
            "steps": plan.recipe.loop.steps,
            "training_s": estimate.training_s,
            "disk_bytes": estimate.disk_bytes,
            "memory_bytes": estimate.memory_bytes,
            "device": estimate.device,
        }

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

    def _plan(self, arm: str) -> Plan:
        """Prepare an arm's rows, and set the number of steps that its budget of tokens makes."""
        corpus = self._corpus(self.study.arms[arm].corpus)
        tokenizer = self._vocabulary(self.study.vocabulary_of(arm), self._corpus())
        recipe = self.study.recipe_of(arm, corpus, tokenizer)
        with _locked(self.work / "rows.lock"):
            prepared = prepare(recipe, self._cache, num_workers=self._num_workers)
        tokens_per_step = recipe.loop.batch_size * prepared.num_tokens / len(prepared.feed.corpus)
        steps = math.ceil((self.study.arms[arm].tokens or self.study.tokens) / tokens_per_step)
        changes: dict[str, Any] = {"steps": steps, "warmup_steps": round(self.study.warmup_share * steps)}
        # Of every run, so that one made for another study serves those who look at its course.
        changes["export_steps"] = [round(steps * k / QUARTERS) for k in range(1, QUARTERS)]
        recipe = recipe.model_copy(update={"loop": recipe.loop.model_copy(update=changes)})
        kind = "random" if self.study.arms[arm].is_random else "encoder"
        own = fingerprint([recipe.model_dump(exclude={"data": {"corpus", "tokenizer"}}), prepared.digest])
        return Plan(recipe, self.work / f"{kind}-{own[:12]}")

    def _random(self, arm: str, plan: Plan) -> ArmRecord:
        """Save the first weights of an arm's shape."""
        import torch
        from transformers import BertTokenizer

        from pretraining.machine import no_file_bars
        from pretraining.run import build_model

        prepared = prepare(plan.recipe, self._cache, num_workers=self._num_workers)
        model = build_model(plan.recipe, prepared)
        with torch.no_grad(), no_file_bars():
            network = model.export(dict(model.named_parameters()))
            network.save_pretrained(plan.folder)
        save_tokenizer(BertTokenizer.from_pretrained(prepared.tokenizer), plan.folder)
        return ArmRecord(
            arm=arm,
            encoder=str(plan.folder),
            recipe=plan.recipe.model_dump(),
            num_parameters=network.num_parameters(),
        )

    def _held_out(self, encoder: Path, max_length: int) -> dict[str, Any]:
        """Return the masked-LM scores on held-out text of the study's corpus; nothing without such a head."""
        from pretraining.evaluate import evaluate_mlm

        corpus = self._corpus()
        path = encoder / f"held-out-{corpus.name}.json"
        if not path.is_file():
            architectures = _read(encoder / "config.json").get("architectures") or []
            has_head = any("MaskedLM" in name or "PreTraining" in name for name in architectures)
            is_told = has_head and any(corpus_files(corpus, "held-out"))
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
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time make a part that several may need."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def dry_run(run: StudyRun) -> str:
    """Return a table of what a study will take: arms with their pretraining, and cells."""
    estimates = [run.estimate(arm) for arm in run.study.arms]
    hours = sum(estimate["training_s"] for estimate in estimates) / 3600
    cells = len(run.study.arms) * len(run.study.tasks) * run.study.seeds
    lines = ["| arm | steps | hours | memory (GB) | disk (GB) | on |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    lines += [
        f"| {e['arm']} | {e['steps']:,} | {e['training_s'] / 3600:.2f} | {e['memory_bytes'] / 1e9:.2f} | "
        f"{e['disk_bytes'] / 1e9:.2f} | {e['device']} |"
        for e in estimates
    ]
    lines += ["", f"{hours:.2f} hours of pretraining, then {cells:,} cells of fine-tuning."]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Run a study from the command line; prints where its page is."""
    parser = ArgumentParser("python -m eval.study", "Pretrain the arms of a study, fine-tune, test, write the page.")
    parser.add_argument("study", help="a TOML file, or one of ours")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/studies"), help="corpora, vocabularies, encoders")
    parser.add_argument("--out", type=Path, default=Path("reports/studies"), help="results and page, in OUT/NAME")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare text")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run at once")
    parser.add_argument("--cpu", action="store_true", help="pretrain on the CPU although there is a GPU")
    parser.add_argument("--shard", metavar="I/N", help="run only share I of N of the cells, and write no page")
    parser.add_argument("--publish", type=Path, metavar="DIR", help="keep page, chart and cells in DIR/NAME, too")
    parser.add_argument("--dry-run", action="store_true", help="tell what it will take")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another scale, e.g. --set tokens=2_000_000_000"
    )
    arguments = parser.parse(argv)
    study = read_study(arguments.study, arguments.set)
    out: Path = arguments.out / study.name
    run = StudyRun(
        study,
        root=data_root(arguments.data),
        work=arguments.work,
        out=out,
        num_workers=arguments.workers,
        cpu=arguments.cpu,
    )
    if arguments.dry_run:
        sys.stdout.write(dry_run(run))
        return EXIT_DONE
    tasks = [get_task(name) for name in study.tasks]
    names = list(study.arms)
    if arguments.shard:
        index, count = parse_share(arguments.shard)
        # Of the arms first, which then are there for the cells; those of others are waited for.
        names = names[index - 1 :: count] + [name for k, name in enumerate(names) if k % count != index - 1]
    records = {name: run.make_encoder(name) for name in names}
    ordered = [records[name] for name in study.arms]
    cells = plan_cells(run.entries(ordered), tasks, study.seeds)
    cells = share_of(cells, *parse_share(arguments.shard)) if arguments.shard else cells
    others = [path.parent for path in sorted(arguments.out.glob("*/results"))]
    published: Path | None = arguments.publish / study.name if arguments.publish else None
    if published and (published / ARCHIVE).is_file():
        restore(published / ARCHIVE, out)
    filler = Filler(cells, root=run.root, out=out, jobs=arguments.jobs, elsewhere=others)
    filler.fill()
    if published:
        pack(out, published / ARCHIVE)
    if not arguments.shard:
        table = run.table(filler)
        created = max((cell.environment.get("finished", "") for cell in table.cells), default="")
        board = LeaderboardFile(
            schema=1,
            created=created,
            manifest=fold_manifest(table.cells)
            | {"study": study.model_dump(), "arms": [record.model_dump() for record in ordered]},
            rows=table.rows,
            comparisons=table.comparisons,
        )
        write_leaderboard(out, board, [task.name for task in tasks])
        for folder in filter(None, (out, published)):
            for page in write_page(folder, study, ordered, table):
                sys.stdout.write(f"{page}\n")
    return EXIT_FAILED_CELLS if filler.gaps else EXIT_DONE


def parse_share(text: str) -> tuple[int, int]:
    """Read `I/N`.

    Raises:
        UsageError: it is no share.
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise UsageError("--shard", f"'{text}' is no share", "give I/N with I from 1 to N, e.g. 1/4")
    return int(index), int(count)


if __name__ == "__main__":
    run_command(main)
