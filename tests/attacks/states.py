"""Attacks by what a command has kept: stories, settings, a run that was begun."""

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apps.stories.__main__ import main as edit_stories
from corpora.foundation.files import DIGEST_KEY, fingerprint
from downstream.trainer_checkpoints import MANIFEST, last_checkpoint
from pretraining.recipe import find_recipe, read_recipe
from pretraining.run import main as pretrain
from pretraining.training.state.checkpoints import FILES, load_checkpoint
from tests.attacks.attack import Attack
from tests.attacks.files import DEEP, Make, line, write
from tests.attacks.models import Evil


def edited(path: Path, _out: Path) -> int:
    return edit_stories([str(path), "list"])


def recipe(path: Path, out: Path) -> int:
    return pretrain([str(path), "--out", str(out / "model")])


def resumed(path: Path, _out: Path) -> int:
    return pretrain(["sample", "--out", str(path), "--cpu", "--workers", "1"])


def changed_state(base: Path, change: Callable[[dict[str, Any]], Any]) -> Make:
    """Return what writes stories whose state was changed and has no digest, as in earlier versions."""

    def make(folder: Path) -> Path:
        for file in base.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        state = json.loads((folder / "stories.json").read_text())
        del state["digest"]
        change(state)
        (folder / "stories.json").write_text(json.dumps(state))
        return folder

    return make


def deep_state(folder: Path) -> Path:
    (folder / "stories.json").write_text(DEEP)
    return folder


def run_attacks() -> list[Attack]:
    """Return attacks by folders of a pretraining that was begun."""
    recipe, data, manifest = "recipe.json", "data.json", "manifest.json"
    own: dict[str, Any] = json.loads(json.dumps(read_recipe(find_recipe("sample"), []).model_dump()))
    cases: list[tuple[str, str, bytes]] = [
        ("a run whose recipe was cut off", recipe, json.dumps(own).encode()[:-9]),
        ("a run whose recipe is a list", recipe, b"[]"),
        ("a run whose recipe is text", recipe, b'"a"'),
        ("a run whose recipe is a million deep", recipe, DEEP.encode()),
        ("a run whose recipe has no steps", recipe, line(own | {"loop": {"steps": "many"}})),
        ("a run whose recipe is no text", recipe, b"\xff\xfe"),
        ("a run whose recipe lost its digest", recipe, line(own | {DIGEST_KEY: "0" * 64})),
        ("a run whose data have no digest", data, b'{"x": 1}'),
        ("a run whose batches are text", data, line({"sha256": "0" * 64, "micro_batch_size": "x"})),
        ("a run whose data are a number of 5,000 digits", data, b'{"sha256": ' + b"9" * 5_000 + b"}"),
        ("a run whose manifest is empty", manifest, b""),
        ("a run whose manifest has no scores", manifest, line({"schema": 1, "tokens": 5})),
        ("a run whose manifest was changed", manifest, line({"tokens": 5, "held_out": {}, DIGEST_KEY: "0" * 64})),
    ]
    return [Attack(name, write_run(file, content), (resumed,), file, max_s=3) for name, file, content in cases]


def write_run(name: str, content: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / "run").mkdir()
        (folder / "run" / name).write_bytes(content)
        return folder / "run"

    return make


def checkpoint_attacks() -> list[Attack]:
    """Return attacks by checkpoints of pretraining and of fine-tuning."""
    empty = hashlib.sha256(b"").hexdigest()
    states: list[tuple[str, Any]] = [
        ("a checkpoint that is a list", []),
        ("a checkpoint of another form", signed_state({"schema": 1})),
        ("a checkpoint whose step is text", signed_state({"step": "x", "state": {}, "files": dict(EMPTY)})),
        ("a checkpoint whose files are text", signed_state({"step": 1, "state": {}, "files": "x"})),
        ("a checkpoint whose weights are none", signed_state({"step": 1, "state": {}, "files": dict(EMPTY)})),
    ]
    texts = [(name, json.dumps(state)) for name, state in states] + [("a checkpoint a million deep", DEEP)]
    attacks = [
        Attack(name, checkpoint({"state.json": text.encode()}), (resume_pretraining,), "damaged")
        for name, text in texts
    ]
    manifest = {"schema": 1, "run": "a", "step": 4, "files": {"x": empty}, "states": {}}
    up = manifest | {"files": {"../../up": empty}}
    cases: list[tuple[str, dict[str, bytes], str]] = [
        ("a checkpoint of pickles", {"optimizer.pt": CODE}, "pickles"),
        ("pickles beside a manifest", {MANIFEST: record(manifest), "x": b"", "rng_state.pth": CODE}, "not a file that"),
        ("a checkpoint of another run", {MANIFEST: record(manifest | {"run": "b"}), "x": b""}, "another run"),
        ("a checkpoint without its digest", {MANIFEST: line(manifest), "x": b""}, "changed since"),
        ("a checkpoint with a way up", {MANIFEST: record(up)}, "not a file that"),
        ("a manifest that lists nothing", {MANIFEST: record({"run": "a"})}, "lists no files"),
        ("a manifest a million deep", {MANIFEST: DEEP.encode()}, "nested too deeply"),
        ("a manifest that is a list", {MANIFEST: b"[]"}, "not an object"),
    ]
    return attacks + [Attack(name, checkpoint(files), (resume_finetuning,), says) for name, files, says in cases]


EMPTY = {name: hashlib.sha256(b"").hexdigest() for name in FILES}
CODE = pickle.dumps(Evil())


def signed_state(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"sha256": fingerprint(state)}


def record(value: dict[str, Any]) -> bytes:
    return line(value | {DIGEST_KEY: fingerprint(value)})


def checkpoint(files: dict[str, bytes]) -> Make:
    """Return what writes a checkpoint with weights of no bytes, and further files."""

    def make(folder: Path) -> Path:
        path = folder / "checkpoints" / "checkpoint-4"
        path.mkdir(parents=True)
        if "state.json" in files:
            files.update({f"{name}.safetensors": b"" for name in FILES})
        for name, content in files.items():
            (path / name).write_bytes(content)
        return path.parent

    return make


def resume_pretraining(path: Path, _out: Path) -> None:
    load_checkpoint(path)


def resume_finetuning(path: Path, _out: Path) -> None:
    last_checkpoint(path, "a")


def state_attacks(base: Path) -> list[Attack]:
    """Return attacks by stories and TOML; BASE is a folder of stories."""
    changes: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
        ("stories with a column too short", lambda state: state["story_of"].pop()),
        ("an article in an unknown story", lambda state: state.update(story_of=["s99"] * len(state["story_of"]))),
        ("a title out of range", lambda state: state.update(of_article=[10**6] * len(state["of_article"]))),
        ("stories of another form", lambda state: state.update(articles=[{"x": "y"}] * len(state["articles"]))),
        ("vectors elsewhere", lambda state: state.update(vectors="../../../etc/passwd")),
        (
            "an edit out of range",
            lambda state: state.update(edits=[{"kind": "merge", "story": "s1", "moved": {"s2": [10**6]}}]),
        ),
    ]
    attacks = [
        Attack(name, changed_state(base, change), (edited,), "stories.json" if "elsewhere" not in name else "passwd")
        for name, change in changes
    ]
    settings = [
        ("a table a hundred thousand deep", "a." * 100_000 + "b = 1\n"),
        ("lists a hundred thousand deep", "a = " + "[" * 100_000 + "\n"),
        ("a number of five thousand digits in a recipe", "seed = " + "9" * 5_000 + "\n"),
    ]
    attacks.append(Attack("stories a million deep", deep_state, (edited,), "stories.json"))
    return attacks + [
        Attack(name, write("recipe.toml", text.encode()), (recipe,), "recipe.toml", max_s=5) for name, text in settings
    ]
