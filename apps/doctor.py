"""What is installed, what runs on this machine, and where data and caches lie: `pressbert doctor`.

    pressbert doctor
    pressbert doctor --json

It ends with 0 if the bundled tools run, else with 2; missing extras are no fault. Nothing is downloaded or written.
"""

import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, EXIT_USER_MUST_FIX, ArgumentParser, run_command
from corpora.foundation.errors import SuiteError
from corpora.foundation.floors import DISTRIBUTION, extras
from corpora.foundation.machine import cpu_name, num_threads
from corpora.foundation.plugins import GROUPS, plugins
from corpora.official import cache_root, data_root
from downstream.classify import classify
from downstream.embed import encode
from downstream.encoders.folder import BUNDLED, ModelFolder
from downstream.runtimes.backends import all_backends, unsupported_reason
from downstream.runtimes.selection import runtime_cache
from downstream.summarize import summarize
from downstream.task import all_tasks

ARTICLE = "새 다리가 열렸다. 시는 다음 달 버스 노선을 바꿀 계획이다. 주민들은 반겼다."
PROBES: dict[str, Callable[[], object]] = {
    "summarize": lambda: summarize(ARTICLE, sentences=1),
    "classify": lambda: classify(["배우들 연기가 좋았다"]),
    "embed": lambda: encode(["새 다리가 열렸다"]),
}
"""Tool → a question to its bundled model."""
KEYS = {"readers": "suffix", "contestants": "kind", "backends": ""}
"""Attribute that names the parts of a group of plug-ins, where it is not `name`."""
NO_EXTRAS = {"benchmarks", "docs", "release", "test"}
"""For work on the suite itself."""


def installed() -> dict[str, dict[str, str | None]]:
    """Return the version of every package, None where it is missing, by extra; those without one are `core`."""
    names = {"core": [line.split(">")[0] for line in metadata.requires(DISTRIBUTION) or () if ";" not in line]}
    names |= {extra: found for extra, found in sorted(extras().items()) if extra not in NO_EXTRAS}
    return {extra: {name: _version(name) for name in found if "[" not in name} for extra, found in names.items()}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def accelerator() -> str:
    """Return the name of the GPU that PyTorch would use, or why there is none."""
    if importlib.util.find_spec("torch") is None:
        return "none: PyTorch is not installed"
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none: PyTorch sees no GPU"


def machine() -> dict[str, Any]:
    """Return what decides speed on this machine."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "threads": num_threads(),
        "memory_bytes": pages,
        "accelerator": accelerator(),
        "backends": {name: unsupported_reason(name) or "ready" for name in all_backends()},
    }


def places() -> dict[str, dict[str, Any]]:
    """Return the folders that are read and written, with their sizes."""
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    try:
        data: Path | SuiteError = data_root(None)
    except SuiteError as error:
        data = error
    found = {"data": data, "downloads": cache_root(), "choices": runtime_cache(), "hub": hub, "bundled": BUNDLED}
    return {
        name: {"path": str(path), "size_bytes": _size(path) if isinstance(path, Path) and name != "data" else None}
        for name, path in found.items()
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def official_files() -> dict[str, int]:
    """Return how many official files there are, and how many of them lie under the data root."""
    try:
        root = data_root(None)
    except SuiteError:
        root = cache_root()
    files = {file.path for task in all_tasks().values() if not task.is_sample for file in task.files.values()}
    return {"known": len(files), "present": sum((root / path).is_file() for path in files)}


def tools() -> dict[str, dict[str, Any]]:
    """Ask every bundled model one question; returns the seconds, or what is wrong."""
    found: dict[str, dict[str, Any]] = {}
    for name, ask in PROBES.items():
        began = time.perf_counter()
        try:
            ask()
        except (SuiteError, ImportError, OSError) as error:
            found[name] = {"ok": False, "reason": str(error)}
        else:
            found[name] = {"ok": True, "first_answer_s": round(time.perf_counter() - began, 2)}
    return found


def examine() -> dict[str, Any]:
    """Return all of it."""
    models = {folder.name: ModelFolder(folder) for folder in sorted(BUNDLED.iterdir()) if folder.is_dir()}
    return {
        "pressbert": _version(DISTRIBUTION),
        "machine": machine(),
        "packages": installed(),
        "models": {name: {"size_bytes": folder.weights_bytes} for name, folder in models.items() if folder.has_config},
        "places": places(),
        "official_files": official_files(),
        "plugins": {group: sorted(plugins(group, key=KEYS.get(group, "name"))) for group in GROUPS},
        "tools": tools(),
    }


def describe(found: dict[str, Any]) -> str:
    """Return the findings as lines for a terminal."""
    about = found["machine"]
    lines = [f"pressbert {found['pressbert']}, Python {about['python']}, {about['platform']}"]
    lines.append(f"{about['cpu']}, threads: {about['threads']}, {about['memory_bytes'] / 2**30:.0f} GiB")
    lines += [f"accelerator: {about['accelerator']}", "", "packages"]
    for extra, packages in found["packages"].items():
        missing = [name for name, version in packages.items() if version is None]
        state = f"missing: {', '.join(missing)}" if missing else "installed"
        fix = f"  pip install 'pressbert[{extra}]'" if missing and extra != "core" else ""
        lines.append(f"  {extra:<10} {state}{fix}")
    lines += ["", "backends", *(f"  {name:<10} {state}" for name, state in about["backends"].items())]
    lines += ["", "models"]
    lines += [f"  {name:<10} {model['size_bytes'] / 1e6:.0f} MB" for name, model in found["models"].items()]
    if added := [f"  {group:<12} {', '.join(names)}" for group, names in found["plugins"].items() if names]:
        lines += ["", "plug-ins", *added]
    lines += ["", "places"]
    for name, place in found["places"].items():
        size = "" if place["size_bytes"] is None else f"  {place['size_bytes'] / 1e6:.0f} MB"
        lines.append(f"  {name:<10} {place['path']}{size}")
    official = found["official_files"]
    lines += [f"  {official['present']} of {official['known']} official files", "", "tools"]
    for name, tool in found["tools"].items():
        state = f"first answer in {tool['first_answer_s']:.2f} s" if tool["ok"] else tool["reason"]
        lines.append(f"  {name:<10} {state}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Examine this installation from the command line."""
    parser = ArgumentParser("pressbert doctor", "Show what is installed, what runs here, and where files lie.")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    arguments = parser.parse(argv)
    found = examine()
    text = json.dumps(found, ensure_ascii=False, indent=1) if arguments.json else describe(found)
    sys.stdout.write(f"{text}\n")
    return EXIT_DONE if all(tool["ok"] for tool in found["tools"].values()) else EXIT_USER_MUST_FIX


if __name__ == "__main__":
    run_command(main)
