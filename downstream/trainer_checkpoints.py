"""Checkpoints of transformers' Trainer as safetensors and JSON, with the digest of every file and of the run.

The Trainer itself writes optimizer and random states as pickles. Here nothing is unpickled: a checkpoint is used only
if its manifest, which is written last, lists exactly its files, and the run that it belongs to.
"""

import logging
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, cannot_write
from corpora.foundation.files import parse_signed, sha256, write_signed

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

MANIFEST = "checkpoint.json"
STATES = "states.safetensors"
"""State of the optimizer as `group of tensors|entry`, and of the random generators of torch."""
OPTIMIZER, GENERATOR = "optimizer", "generator"
PICKLES = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")


def last_checkpoint(folder: Path, run: str) -> str | None:
    """Return the newest complete checkpoint of an interrupted run, or None.

    Args:
        folder: of the checkpoints.
        run: fingerprint of what is trained.

    Raises:
        CheckpointError: the newest one is damaged, or belongs to another run.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=_step_of, reverse=True):
        if (path / MANIFEST).is_file():
            _check(path, run)
            return str(path)
        if any(path.glob("*.pt")) or any(path.glob("*.pth")):
            what = "a checkpoint of pickles, which are never loaded"
            raise CheckpointError(path, what, "delete it to start from the beginning")
        # Without its manifest the save was interrupted.
    return None


def _step_of(path: Path) -> int:
    step = path.name.removeprefix("checkpoint-")
    return int(step) if step.isdecimal() else -1


def _check(path: Path, run: str) -> None:
    """Refuse a checkpoint with other files than were written, or of another run."""
    fix = f"delete {path} to start from the beginning"
    manifest = _read_manifest(path)
    if manifest.get("run") != run:
        raise CheckpointError(path, "it belongs to another run", fix)
    files: dict[str, str] = manifest["files"]
    found = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()} - {MANIFEST}
    if odd := sorted(found ^ files.keys()):
        raise CheckpointError(path / odd[0], "not a file that the run has written, or missing", fix)
    for name, digest in files.items():
        if sha256(path / name) != digest:
            raise CheckpointError(path / name, "changed since it was written: its digest is another one", fix)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = parse_signed((path / MANIFEST).read_text(encoding="utf-8"), is_required=True)
        if not isinstance(manifest.get("files"), dict):
            raise ValueError("it lists no files")
    except (OSError, ValueError) as error:
        raise CheckpointError(path / MANIFEST, f"damaged ({error})", f"delete {path} to start again") from error
    return manifest


class SafeCheckpoints:
    """Mixin for a subclass of `Trainer`, before it in the list of bases: saves and loads checkpoints without pickles.

    The class sets `run_digest`. Processes that train together, and schedules of other kinds than functions, are not
    supported.
    """

    run_digest = ""
    """Fingerprint of what is trained."""
    # Set by the Trainer.
    optimizer: Any
    lr_scheduler: Any
    accelerator: Any
    args: Any
    state: Any

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        from safetensors import SafetensorError

        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        try:
            shutil.rmtree(folder, ignore_errors=True)  # one that a kill has interrupted
            super()._save_checkpoint(*arguments, **options)  # type: ignore[misc]
            for name in PICKLES:
                (folder / name).unlink(missing_ok=True)
            files = {file.relative_to(folder).as_posix(): sha256(file) for file in _files(folder)}
        except (OSError, SafetensorError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "write" not in str(error):
                raise
            # torch reports a full disk by a RuntimeError of its own.
            raise cannot_write(folder, error) from error
        manifest = {"schema": 1, "run": self.run_digest, "step": self.state.global_step, "files": files}
        write_signed(folder / MANIFEST, manifest | {"states": self._plain_states()})
        # Only now: the older one is what a kill before has left.
        for other in folder.parent.glob("checkpoint-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Write the tensors of all states; the Trainer would pickle them."""
        import torch
        from safetensors.torch import save_file

        tensors = {f"{GENERATOR}|cpu": torch.random.get_rng_state()}
        if torch.cuda.is_available():
            tensors[f"{GENERATOR}|cuda"] = torch.cuda.random.get_rng_state()
        for number, entries in self.optimizer.state_dict()["state"].items():
            tensors |= {f"{OPTIMIZER}|{number}|{name}": value for name, value in _tensors_of(entries)}
        save_file({name: part.detach().cpu().contiguous() for name, part in tensors.items()}, Path(output_dir) / STATES)

    def _save_rng_state(self, output_dir: str) -> None:
        """Do nothing: these states are in `STATES` and the manifest."""

    def _save_scaler(self, output_dir: str) -> None:
        """Do nothing: it is in the manifest."""

    def _plain_states(self) -> dict[str, Any]:
        """Return the states that are no tensors, as JSON."""
        import numpy as np

        saved = self.optimizer.state_dict()
        kind, keys, *rest = np.random.get_state()
        scaler = getattr(self.accelerator, "scaler", None)
        return {
            "groups": saved["param_groups"],
            "numbers": {
                str(number): {name: value for name, value in entries.items() if not hasattr(value, "detach")}
                for number, entries in saved["state"].items()
            },
            "scheduler": self.lr_scheduler.state_dict(),
            "python": random.getstate(),
            "numpy": [kind, np.asarray(keys).tolist(), *rest],
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Read the states of optimizer, schedule and scaler."""
        if checkpoint is None:
            return
        states, tensors = _read_states(Path(checkpoint))
        per_parameter: dict[int, dict[str, Any]] = {
            int(number): dict(entries) for number, entries in states["numbers"].items()
        }
        for key, value in tensors.items():
            if key.startswith(f"{OPTIMIZER}|"):
                _, number, name = key.split("|", 2)
                per_parameter.setdefault(int(number), {})[name] = value
        self.optimizer.load_state_dict({"state": per_parameter, "param_groups": states["groups"]})
        self.lr_scheduler.load_state_dict(states["scheduler"])
        if states["scaler"] is not None and getattr(self.accelerator, "scaler", None) is not None:
            self.accelerator.scaler.load_state_dict(states["scaler"])

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Do nothing: it is read with the optimizer."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Set the random generators as they were."""
        if checkpoint is None:
            return
        import numpy as np
        import torch

        states, tensors = _read_states(Path(checkpoint))
        version, keys, gauss = states["python"]
        random.setstate((version, tuple(keys), gauss))
        kind, numbers, *rest = states["numpy"]
        np.random.set_state((kind, np.array(numbers, np.uint32), *rest))
        torch.random.set_rng_state(tensors[f"{GENERATOR}|cpu"])
        if torch.cuda.is_available() and f"{GENERATOR}|cuda" in tensors:
            torch.cuda.random.set_rng_state(tensors[f"{GENERATOR}|cuda"])


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _tensors_of(entries: Mapping[str, Any]) -> "Iterator[tuple[str, Tensor]]":
    return ((name, value) for name, value in entries.items() if hasattr(value, "detach"))


def _read_states(path: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    from safetensors.torch import load_file

    return _read_manifest(path)["states"], load_file(path / STATES)
