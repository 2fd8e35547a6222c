"""The speed-run board: how many tokens and core seconds a recipe takes to a fixed level of masked-token perplexity.

    python -m benchmarks.speedrun RECIPE --name NAME --corpus CORPUS --tokenizer VOCABULARY

Every seed is a run of its own. The model of every `--every` steps is scored by `pretraining.evaluate`, with the same
rows and masks for all, and the first one that reaches the level counts. A record is kept as JSON with its recipe. Each
seed is added to it when it is finished, with the commit and the processor, so that seeds can be run side by side, on
several days or machines; another recipe, corpus or vocabulary is refused. The board shows records of at least two
seeds that all reach the level. Interrupted runs continue.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.corpus import Split, corpus_files
from corpora.foundation.command import run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import fingerprint, locked, sha256, write_json
from corpora.foundation.machine import cpu_name
from eval.board.guide import write_block
from eval.cells.manifest import git_commit
from pretraining.evaluate import evaluate_mlm
from pretraining.recipe import Recipe, find_recipe, read_recipe
from pretraining.training.run import MANIFEST_FILE, Run, step_folder

DOCS = Path(__file__).resolve().parents[1] / "docs"
LEVEL = 35.2
"""Perplexity of the bundled encoder after phase 5, on the held-out rows of its corpus."""
MIN_SEEDS = 2


def main(argv: list[str] | None = None) -> int:
    """Run a recipe with every seed, and add its record to the board."""
    parser = argparse.ArgumentParser(description="Add a record to the speed-run board.")
    parser.add_argument("recipe", help="a TOML file, or one of the package's")
    parser.add_argument("--name", required=True, help="of the record, e.g. mini-muon")
    parser.add_argument("--corpus", type=Path, required=True, help="folder made by corpora.build, with held-out texts")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder made by pretraining.vocab")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--every", type=int, default=250, help="steps between scored models")
    parser.add_argument("--level", type=float, default=LEVEL, help="perplexity to reach")
    parser.add_argument("--rows", type=int, default=4096, help="held-out rows of a score")
    parser.add_argument("--work", type=Path, default=Path("runs/speedrun"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the board")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
    arguments = parser.parse_args(argv)
    places = [f"data.corpus={arguments.corpus}", f"data.tokenizer={arguments.tokenizer}"]
    recipe = read_recipe(find_recipe(arguments.recipe), [*arguments.set, *places])
    file = arguments.out / "speedrun" / f"{arguments.name}.json"
    record = make_record(arguments.name, recipe, [], level=arguments.level, data_sha256=data_digest(recipe))
    known = {run["seed"] for run in read_runs(file, record)}
    for seed in sorted(set(arguments.seeds) - known):
        own = with_exports(recipe, seed, arguments.every)
        out = arguments.work / f"{arguments.name}-{fingerprint(own.model_dump())[:8]}"
        found = reach(own, out, arguments.work / "data", level=arguments.level, max_rows=arguments.rows)
        sys.stderr.write(f"seed {seed}: {json.dumps(found)}\n")
        add_run(file, record, {"seed": seed} | found | {"commit": git_commit(), "cpu": cpu_name()})
    record = with_runs(record, read_runs(file, record))
    write_boards(arguments.out)
    sys.stdout.write(json.dumps({key: record[key] for key in ("name", "tokens", "core_s", "reached")}) + "\n")
    return 0


def data_digest(recipe: Recipe) -> str:
    """Return the digest of the texts and the vocabulary of a recipe."""
    splits: tuple[Split, ...] = ("train", "held-out")
    texts = [sha256(*corpus_files(Path(recipe.data.corpus), split)) for split in splits]
    return fingerprint([*texts, sha256(Path(recipe.data.tokenizer) / "tokenizer.json")])


def read_runs(file: Path, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs in the file of a record; empty if there is none.

    Raises:
        UsageError: it has another recipe, level, text or vocabulary than RECORD.
    """
    if not file.is_file():
        return []
    stored = json.loads(file.read_text(encoding="utf-8"))
    for key, what in (("recipe", "recipe"), ("level", "level"), ("data_sha256", "corpus or vocabulary")):
        if stored.get(key) != record[key]:
            raise UsageError("--name", f"{file} has another {what}", "give the record another name")
    runs: list[dict[str, Any]] = stored["runs"]
    return runs


def add_run(file: Path, record: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Add a run to the file of a record, which other processes may have changed meanwhile.

    Raises:
        UsageError: it has another recipe, level, text or vocabulary than RECORD.
    """
    with locked(file.with_suffix(".lock"), is_kept=False):
        others = [other for other in read_runs(file, record) if other["seed"] != run["seed"]]
        write_json(file, with_runs(record, [*others, run]))


def _published(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe without what differs between machines and runs."""
    return recipe.model_dump(mode="json", exclude={"seed": True, "data": {"corpus", "tokenizer"}})


def with_exports(recipe: Recipe, seed: int, every: int) -> Recipe:
    """Return a recipe with another seed that saves its model every so many steps."""
    steps = list(range(every, recipe.loop.steps, every))
    return recipe.model_copy(update={"seed": seed, "loop": recipe.loop.model_copy(update={"export_steps": steps})})


def reach(recipe: Recipe, out: Path, cache: Path, *, level: float, max_rows: int) -> dict[str, Any]:
    """Train, and find the first saved model that reaches a level.

    Args:
        recipe: with `export_steps`.
        out: folder of the run.
        cache: folder of tokens and rows.
        level: perplexity to reach.
        max_rows: held-out rows.

    Returns:
        `tokens`, `core_s` and `perplexity` of that model, or of the last one, and whether it `reached` the level.
        Initial embeddings that were trained on the text are counted in tokens and time.
    """
    import torch

    out.mkdir(parents=True, exist_ok=True)
    Run(recipe, out, cache=cache).train()
    found: dict[str, Any] = {}
    for folder in [*(step_folder(out, step) for step in recipe.loop.export_steps), out]:
        facts = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        perplexity = evaluate_mlm(folder, Path(recipe.data.corpus), max_rows=max_rows)["mlm_perplexity"]
        elapsed_s = facts["elapsed_s"] + facts.get("init_elapsed_s", 0.0)
        found = {
            "tokens": facts["tokens"] + facts.get("init_tokens", 0),
            "core_s": round(elapsed_s * torch.get_num_threads(), 1),
            "perplexity": round(perplexity, 3),
            "reached": perplexity <= level,
        }
        if found["reached"]:
            break
    return found


def make_record(
    name: str, recipe: Recipe, runs: Sequence[Mapping[str, Any]], *, level: float, data_sha256: str
) -> dict[str, Any]:
    """Return a record: the means over seeds, and what is needed to repeat it.

    Args:
        name: of the record.
        recipe: of all seeds.
        runs: by seed, what `reach` returns with `seed`, `commit` and `cpu`; may be empty.
        level: perplexity to reach.
        data_sha256: of `data_digest`.
    """
    record = {"schema": 1, "name": name, "level": level, "data_sha256": data_sha256, "recipe": _published(recipe)}
    return with_runs(record, runs)


def with_runs(record: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a record with these runs, and the means over them."""
    runs = sorted(runs, key=lambda run: run["seed"])
    return dict(record) | {
        "reached": len(runs) >= MIN_SEEDS and all(run["reached"] for run in runs),
        "tokens": round(statistics.mean(run["tokens"] for run in runs)) if runs else None,
        "core_s": round(statistics.mean(run["core_s"] for run in runs), 1) if runs else None,
        "runs": runs,
    }


def write_boards(docs: Path) -> None:
    """Write the tables of both boards from the records, the fewest tokens first.

    Raises:
        UsageError: a board lacks the lines around its table.
    """
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((docs / "speedrun").glob("*.json"))]
    for name, empty, heads in (
        ("speedrun.md", "아직 기록이 없습니다.", ("기록", "토큰", "코어 초", "시드별 토큰", "커밋", "CPU")),
        ("speedrun.en.md", "There is no record yet.", ("record", "tokens", "core seconds", "by seed", "commit", "CPU")),
    ):
        write_block(docs / name, "records", board(records, heads) or empty)


def board(records: Sequence[Mapping[str, Any]], heads: Sequence[str]) -> str:
    """Return the table of the records that reached the level with enough seeds; empty if there are none."""
    reached = sorted((record for record in records if record["reached"]), key=lambda record: record["tokens"])
    if not reached:
        return ""
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for record in reached:
        seeds = ", ".join(f"{run['tokens']:,}" for run in record["runs"])
        link = f"[{record['name']}](speedrun/{record['name']}.json)"
        commits = ", ".join(dict.fromkeys(run["commit"][:9] for run in record["runs"]))
        processors = ", ".join(dict.fromkeys(run["cpu"] for run in record["runs"]))
        cells = [link, f"{record['tokens']:,}", f"{record['core_s']:,.0f}", seeds, commits, processors]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(main)
