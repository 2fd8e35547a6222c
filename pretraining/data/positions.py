"""How long the inputs are that a pretrained folder was trained on, from its files alone; no torch is imported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import parse_signed

MANIFEST_FILE = "manifest.json"


def row_length(folder: Path) -> int | None:
    """Return the longest input in tokens that a folder of `pretraining.run` was trained on; None for other folders.

    Older manifests say how long the rows of the run were, which is nothing for a run that started from another model.
    """
    manifest = _read(folder / MANIFEST_FILE)
    if isinstance(number := manifest.get("num_positions"), int):
        return number
    recipe = manifest.get("recipe")
    data, model = (recipe.get(name) for name in ("data", "model")) if isinstance(recipe, Mapping) else (None, None)
    if not isinstance(data, Mapping) or not isinstance(model, Mapping) or model.get("init"):
        return None
    length = data.get("max_length")
    return length if isinstance(length, int) else None


def _read(path: Path) -> Mapping[str, Any]:
    """Return a JSON object; empty where there is none.

    Raises:
        CheckpointError: it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        return parse_signed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fix = "restore it; if the folder is not one of pretraining.run, delete it"
        raise CheckpointError(path, f"damaged ({str(error).partition(chr(10))[0]})", fix) from error
