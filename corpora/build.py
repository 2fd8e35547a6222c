"""Build a cleaned corpus in shards from raw files.

    python -m corpora.build SOURCE… --out DIR
    python -m corpora.build --recipe open_korean --data ROOT --out DIR
    python -m corpora.build SOURCE… --out DIR --executor local --tasks 16
    python -m corpora.build --inspect RULE --out DIR

A source is a file or a folder of files. `PATH:line`, `PATH:block` and `PATH:file` set what a document is in plain text;
`PATH:text=COLUMN` names the column of the text. The output folder:

    DIR/documents-00000.jsonl, …   training documents: id, title, text; date, section and source if known
    DIR/held-out-00000.jsonl, …    held-out documents, for perplexity
    DIR/rejected.jsonl             unreadable records: where, reason, what to do (fix), record
    DIR/dropped.jsonl              up to 20 dropped documents of every rule, chosen by a hash
    DIR/report.md                  counts by source, year, section and length, duplicates, personal data, vocabulary
    DIR/manifest.json              settings, counts of every source, digest of every shard

`corpora.pipeline.stages` lists the stages. Each is split into tasks that any number of processes share; memory does not
grow with the sources. After an interruption the same command keeps the finished tasks; the result is bit-identical to
an uninterrupted build.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from corpora.cleaning import CleaningConfig
from corpora.corpus import (
    LOCK,
    MANIFEST,
    PROGRESS,
    Manifest,
    SourceFile,
    SourceRecord,
    check_shards,
    read_manifest,
    summary_table,
)
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError, suggest
from corpora.foundation.files import locked
from corpora.official import data_root
from corpora.pipeline.executors import EXECUTORS, run_build
from corpora.pipeline.finishing import DROPPED
from corpora.pipeline.plan import Build, BuildConfig, Plan, make_plan
from corpora.pipeline.privacy import DEFAULT_KINDS, KINDS, Kind
from corpora.readers.decoding import ENCODINGS
from corpora.readers.fields import parse_fields
from corpora.sources import (
    TEXT_UNITS,
    CorpusRecipe,
    Source,
    find_inputs,
    parse_source,
    read_corpus_recipe,
)

__all__ = ["BuildConfig", "build", "main", "recipe_inputs"]


def build(
    sources: Sequence[Source | Path],
    out: Path,
    config: BuildConfig | None = None,
    *,
    executor: Literal["local", "datatrove", "ray"] = "local",
    tasks: int = 1,
) -> Manifest:
    """Build a corpus, or continue an interrupted build.

    Args:
        sources: files and folders; a folder stands for all readable files below it, sorted.
        out: folder of the corpus. If it holds the finished corpus of these sources and settings, nothing is done.
        config: settings.
        executor: where the tasks run.
        tasks: processes, or jobs of a cluster; the bytes do not depend on them.

    Returns:
        The manifest, which is also written to OUT.

    Raises:
        DataError: a source or a file to exclude cannot be read, or no document is left.
        UsageError: OUT holds other files, or is inside a source.
        ResultError: OUT cannot be written.
    """
    config = config or BuildConfig()
    plan, finished = _prepare(sources, out, config)
    if finished is None or (out / PROGRESS).exists():
        # Not in the folder of progress, which whoever holds the lock deletes.
        with locked(out / LOCK, f"{out}"):
            # The process that this one may have waited for has finished the corpus.
            plan, finished = _prepare(sources, out, config)
            if finished is None:
                begun = Build.begin(out, plan)
                begun.workspace.remove_unfinished()
                run_build(begun, executor, tasks)
                finished = read_manifest(out)
            shutil.rmtree(out / PROGRESS, ignore_errors=True)
    return finished


def _prepare(sources: Sequence[Source | Path], out: Path, config: BuildConfig) -> tuple[Plan, Manifest | None]:
    """Return the plan of a build, and the manifest if OUT holds its corpus already."""
    _check_out(out)
    plan = make_plan(config, find_inputs(sources, out, config.text_unit, config.fields, config.encoding))
    if not (out / MANIFEST).is_file():
        return plan, None
    manifest = read_manifest(out)
    _check_same(out, manifest.settings, plan.settings)
    _check_sources(out, manifest.sources, plan.sources)
    check_shards(out, manifest.shards)
    return plan, manifest


def submit(
    sources: Sequence[Source | Path], out: Path, config: BuildConfig, tasks: int, options: Mapping[str, str]
) -> bool:
    """Submit the jobs of a build to Slurm, unless OUT holds its corpus already.

    Args:
        sources: as for `build`.
        out: folder of the corpus, on a file system that all machines share.
        config: settings.
        tasks: jobs that share the tasks of a stage.
        options: of `sbatch` and datatrove, such as the partition.

    Returns:
        Whether jobs were submitted.
    """
    plan, finished = _prepare(sources, out, config)
    if finished is None:
        run_build(Build.begin(out, plan), "slurm", tasks, options)
    return finished is None


def _check_out(out: Path) -> None:
    """Refuse a folder with other files than a corpus."""
    if out.exists() and not out.is_dir():
        raise UsageError("--out", f"'{out}' is a file", "give a folder")
    ours = (out / MANIFEST).is_file() or (out / PROGRESS).is_dir()
    if out.is_dir() and not ours and any(path.name != LOCK for path in out.iterdir()):
        raise UsageError("--out", f"'{out}' holds other files", "choose another --out or delete it")


def _check_same(out: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `UsageError` that names a setting if the corpus in OUT was built with others."""
    for name in sorted({*there, *here}):
        old, new = there.get(name), here.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(out, old, new)
        elif old != new:
            values = f"{name}={old}, not {new}" if isinstance(old, str | int | float) else f"another {name}"
            what = f"'{out}' holds a corpus with {values}"
            raise UsageError("--out", what, "choose another --out or delete it")


def _check_sources(out: Path, there: Sequence[SourceRecord], here: Sequence[SourceFile]) -> None:
    """Raise `UsageError` unless OUT was built from these sources."""
    files = [SourceFile(**record.model_dump(include=set(SourceFile.model_fields))) for record in there]
    if files == list(here):
        return
    changed = [old.name for old, new in zip(files, here, strict=False) if old != new]
    what = f"'{changed[0]}' was another source or another file" if changed else f"{len(files)} sources, not {len(here)}"
    raise UsageError("--out", f"'{out}' holds a corpus of other sources ({what})", "choose another --out or delete it")


# ---- command line ----


def recipe_inputs(recipe: CorpusRecipe, root: Path) -> tuple[list[Source], BuildConfig]:
    """Return the arguments of `build` for a recipe with files under the data root ROOT.

    Raises:
        DataError: a file is missing.
    """
    config = BuildConfig(cleaning=recipe.cleaning, exclude=recipe.excluded_under(root), held_out=recipe.held_out)
    return recipe.sources_under(root), config


def main(argv: list[str] | None = None) -> int:
    """Run the command; see the module's docstring."""
    parser = ArgumentParser("python -m corpora.build", "Clean raw text files and write them as a corpus in shards.")
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="file or folder; PATH:line or PATH:text=COLUMN say how to read it"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the corpus")
    parser.add_argument("--text-unit", choices=TEXT_UNITS, default="block", help="what a document is in plain text")
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="column of a field; repeatable",
    )
    parser.add_argument("--encoding", choices=ENCODINGS, default="auto", help="of text files; default: recognized")
    parser.add_argument(
        "--max-rejected", type=float, default=BuildConfig().max_rejected, metavar="SHARE", help="bad records allowed"
    )
    parser.add_argument("--min-chars", type=int, default=CleaningConfig().min_chars, help="drop shorter texts")
    parser.add_argument(
        "--min-hangul",
        type=float,
        default=CleaningConfig().min_hangul,
        help="drop texts with a smaller share of Hangul",
    )
    parser.add_argument("--keep-boilerplate", action="store_true", help="keep bylines, captions, copyright notices")
    parser.add_argument("--no-dedup", action="store_true", help="keep duplicate texts")
    parser.add_argument(
        "--exclude", nargs="+", type=Path, default=[], metavar="FILE", help="evaluation data to keep out of the corpus"
    )
    parser.add_argument(
        "--held-out", type=float, default=BuildConfig().held_out, metavar="SHARE", help="share of held-out documents"
    )
    parser.add_argument("--shard-mb", type=float, default=BuildConfig().shard_mb, help="largest size of a shard")
    parser.add_argument(
        "--near-duplicates",
        type=float,
        default=CleaningConfig().near_duplicates,
        metavar="JACCARD",
        help="drop texts that are so similar to an earlier one; 0 keeps them",
    )
    parser.add_argument("--any-quality", action="store_true", help="do not drop longer texts for their quality")
    parser.add_argument("--keep-personal-data", action="store_true", help="do not mask personal data")
    parser.add_argument("--mask-addresses", action="store_true", help="mask street addresses, too")
    parser.add_argument("--recipe", help="instead of all the above: a TOML file or a bundled recipe, e.g. open_korean")
    parser.add_argument(
        "--data", type=Path, help="data root of a recipe; default PRESSBERT_DATA, else the user's cache"
    )
    parser.add_argument("--step", action="append", default=[], metavar="NAME", help="edit of a plug-in; repeatable")
    parser.add_argument("--executor", choices=EXECUTORS, default="local", help="where the tasks run")
    parser.add_argument("--tasks", type=int, default=1, metavar="N", help="processes, or jobs of a cluster")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of Slurm, e.g. partition=cpu; repeatable"
    )
    parser.add_argument("--inspect", metavar="RULE", help="show dropped documents of a finished corpus")
    arguments = parser.parse(argv)
    if arguments.inspect:
        _inspect(arguments.out, arguments.inspect)
        return EXIT_DONE
    sources, config = _inputs(arguments, parser)
    was_finished = (arguments.out / MANIFEST).is_file()
    if arguments.tasks < 1:
        raise UsageError("--tasks", f"{arguments.tasks} processes", "give 1 or more")
    if arguments.executor == "slurm" and submit(sources, arguments.out, config, arguments.tasks, _options(arguments)):
        sys.stderr.write("submitted; run the same command again when the jobs are finished\n")
        return EXIT_DONE
    if arguments.option and arguments.executor != "slurm":
        raise UsageError("--option", "it is for Slurm", "add --executor slurm, or leave it out")
    executor: Literal["local", "datatrove", "ray"] = "local" if arguments.executor == "slurm" else arguments.executor
    manifest = build(sources, arguments.out, config, executor=executor, tasks=arguments.tasks)
    if was_finished:
        sys.stderr.write(f"nothing to do: {arguments.out} holds this corpus already\n")
    sys.stdout.write(f"{summary_table(manifest)}\n")
    return EXIT_DONE


def _inputs(arguments: argparse.Namespace, parser: ArgumentParser) -> tuple[list[Source], BuildConfig]:
    """Return sources and settings of the command line or of its recipe."""
    if arguments.recipe:
        given, free = vars(arguments), {"recipe", "data", "out", "executor", "tasks", "option"}
        changed = (name for name in given if (given[name] or None) != (parser.get_default(name) or None))
        if named := [name for name in changed if name not in free]:
            what = f"--{named[0].replace('_', '-')} is part of the recipe".replace("--sources", "SOURCE")
            raise UsageError("--recipe", what, "give one or the other")
        return recipe_inputs(read_corpus_recipe(arguments.recipe), data_root(arguments.data))
    if not arguments.sources:
        raise UsageError("SOURCE", "none given", "name files or folders, or a --recipe")
    values = {
        "cleaning": {
            "min_chars": arguments.min_chars,
            "min_hangul": arguments.min_hangul,
            "remove_boilerplate": not arguments.keep_boilerplate,
            "remove_duplicates": not arguments.no_dedup,
            "near_duplicates": arguments.near_duplicates,
            "privacy": _kinds_to_mask(arguments),
            "quality": not arguments.any_quality,
            "steps": arguments.step,
        },
        "text_unit": arguments.text_unit,
        "fields": parse_fields(arguments.field),
        "encoding": arguments.encoding,
        "max_rejected": arguments.max_rejected,
        "exclude": arguments.exclude,
        "held_out": arguments.held_out,
        "shard_mb": arguments.shard_mb,
    }
    return [parse_source(source) for source in arguments.sources], validate(BuildConfig, values, parser.prog)


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    pairs = [item.partition("=") for item in arguments.option]
    if bad := next((item for item, (_, equals, _) in zip(arguments.option, pairs, strict=True) if not equals), None):
        raise UsageError("--option", f"'{bad}' is not NAME=VALUE", "write for example partition=cpu")
    return {name: value for name, _, value in pairs}


def _kinds_to_mask(arguments: argparse.Namespace) -> tuple[Kind, ...]:
    if arguments.keep_personal_data:
        return ()
    return KINDS if arguments.mask_addresses else DEFAULT_KINDS


def _inspect(out: Path, rule: str) -> None:
    """Print the kept sample of the documents that a rule dropped.

    Raises:
        UsageError: no rule of that name dropped any.
    """
    rules = read_manifest(out).totals.dropped
    records = [json.loads(line) for line in (out / DROPPED).read_text(encoding="utf-8").splitlines()]
    chosen = [record for record in records if record["rule"] == rule]
    if not chosen:
        raise UsageError("--inspect", f"no dropped documents of '{rule}'", suggest(rule, rules))
    sys.stdout.write(f"{rule}: {rules[rule]:,} documents, of which {len(chosen)}:\n")
    for record in chosen:
        sys.stdout.write(f"\n{record['id']} ({record['num_chars']:,} characters) {record['title']}\n{record['text']}\n")


if __name__ == "__main__":
    run_command(main)
