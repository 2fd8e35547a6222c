"""Arrays in safetensors files that carry a digest of themselves, by which a changed byte is noticed.

write_arrays(path, {"weights": weights})
weights = read_arrays(path)["weights"]
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import DIGEST_KEY, atomic_file

Arrays = dict[str, NDArray[Any]]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name, atomically, with the digest of all of them in the head of the file.

    Raises:
        ResultError: it cannot be written.
    """
    from safetensors.numpy import save

    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    data = save(plain, metadata={DIGEST_KEY: _digest(plain)})
    with atomic_file(path, "wb") as file:
        file.write(data)


def read_arrays(path: Path, *, is_required: bool = False) -> Arrays:
    """Read the arrays of a file and compare them with its digest.

    Args:
        path: what `write_arrays` has written.
        is_required: refuse a file without a digest, which earlier versions wrote.

    Raises:
        CheckpointError: it is missing, damaged, or was changed.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            about = dict(file.metadata() or {})
            arrays: Arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except FileNotFoundError as error:
        raise CheckpointError(path, "no such file", "get it again") from error
    except (SafetensorError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise CheckpointError(path, f"damaged ({reason})", "get the file again") from error
    digest = about.get(DIGEST_KEY)
    # One flipped bit may be in the name of the entry.
    if digest != _digest(arrays) if digest is not None else (is_required or set(about) - {"format"}):
        what = "changed since it was written: its digest is another one"
        raise CheckpointError(path, what, "get the file again")
    return arrays


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    whole = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        whole.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        whole.update(array.tobytes())
    return whole.hexdigest()
