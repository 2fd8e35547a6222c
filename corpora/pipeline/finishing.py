"""Stage `finish`: shards and counts of all units → the corpus in its folder."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.corpus import (
    PREFIXES,
    Manifest,
    ShardRecord,
    SourceRecord,
    Split,
    add_counts,
    describe,
    write_manifest,
)
from corpora.foundation.errors import DataError, cannot_write
from corpora.foundation.files import atomic_file, write_text
from corpora.pipeline.filtering import FILTER, VICTIMS, Victims, filter_key
from corpora.pipeline.plan import Build
from corpora.pipeline.reading import READ, REJECTED
from corpora.pipeline.report import REPORT, render_report
from corpora.pipeline.selection import SELECT

DROPPED = "dropped.jsonl"


def finish(build: Build, selected: Sequence[str], clusters: Mapping[str, list[str]]) -> None:
    """Write the corpus: numbered shards, rejected records, some dropped documents, the report, the manifest.

    Args:
        build: a build whose other stages are finished.
        selected: tasks of `select`, one a unit.
        clusters: tasks of `exact` and `clusters`.

    Raises:
        DataError: no document is left.
    """
    plan, workspace, out = build.plan, build.workspace, build.out
    units = [_counts_of_unit(build, number, key) for number, key in enumerate(selected)]
    sources = tuple(
        SourceRecord(**file.model_dump(), **_sum([units[unit] for unit in plan.units_of(number)]))
        for number, file in enumerate(plan.sources)
    )
    totals = add_counts(sources)
    if not totals.num_kept:
        shutil.rmtree(workspace.root)
        reasons = describe({"rejected": totals.num_rejected, "held out": totals.num_held_out, **totals.dropped})
        raise DataError(out, f"no document is left ({reasons or 'none was read'})", "check sources and limits")
    shards = _place_shards(build, selected)
    with atomic_file(out / REJECTED, "wb") as file:
        for number in range(len(plan.units)):
            with workspace.file(READ, plan.key_of(number), REJECTED).open("rb") as part:
                shutil.copyfileobj(part, file)
    _write_dropped(build, selected)
    manifest = Manifest(schema=1, settings=plan.settings, totals=totals, sources=sources, shards=shards)
    write_text(out / REPORT, render_report(build, manifest, selected, clusters))
    write_manifest(out, manifest)


def _counts_of_unit(build: Build, number: int, key: str) -> dict[str, Any]:
    """Return the counts of a unit over all stages."""
    read = build.workspace.counts(READ, build.plan.key_of(number))
    filtered = build.workspace.counts(FILTER, filter_key(build, number))
    selected = build.workspace.counts(SELECT, key)
    return {
        "num_read": read["num_read"],
        "num_rejected": read["num_rejected"],
        "num_kept": selected["num_kept"],
        "num_held_out": selected["num_held_out"],
        "num_chars": selected["num_chars"],
        "dropped": Counter(read["dropped"]) + Counter(filtered["dropped"]) + Counter(selected["dropped"]),
        "edited": Counter(read["edited"]) + Counter(filtered["edited"]),
        "masked": Counter(filtered["masked"]),
    }


def _sum(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up counts of units, those by reason sorted by name."""
    total: dict[str, Any] = {}
    for each in counts:
        for name, value in each.items():
            total[name] = total[name] + value if name in total else value
    return {name: dict(sorted(value.items())) if isinstance(value, Counter) else value for name, value in total.items()}


def _place_shards(build: Build, selected: Sequence[str]) -> tuple[ShardRecord, ...]:
    """Give the shards of all units their numbers, and put them into the folder of the corpus."""
    numbers: Counter[Split] = Counter()
    shards: list[ShardRecord] = []
    for key in selected:
        for each in build.workspace.counts(SELECT, key)["shards"]:
            shard = ShardRecord(**each)
            name = f"{PREFIXES[shard.split]}{numbers[shard.split]:05d}.jsonl"
            _link(build.workspace.file(SELECT, key, shard.name), build.out / name)
            numbers[shard.split] += 1
            shards.append(shard.model_copy(update={"name": name}))
    return tuple(shards)


def _link(path: Path, to: Path) -> None:
    """Make a finished file appear under another name as well; a kill here costs no work."""
    try:
        to.unlink(missing_ok=True)
        try:
            os.link(path, to)
        except OSError:
            # Some file systems have no links.
            with path.open("rb") as source, atomic_file(to, "wb") as copy:
                shutil.copyfileobj(source, copy)
        to.chmod(0o644)
    except OSError as error:
        raise cannot_write(to, error) from error


def _write_dropped(build: Build, selected: Sequence[str]) -> None:
    victims = Victims()
    for number, key in enumerate(selected):
        for stage, each in ((FILTER, filter_key(build, number)), (SELECT, key)):
            for record in build.workspace.records(stage, each, VICTIMS):
                victims.add_record(record)
    with atomic_file(build.out / DROPPED) as file:
        for record in victims.records():
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
