"""The embedder: a sentence-transformers folder, or an encoder with mean pooling, that encodes texts as unit vectors."""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.characters import nfc
from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import package_path, sha256
from downstream.embeddings.pipeline import check_is_safe, is_mean_pooling, read_settings
from downstream.embeddings.pooling import PooledEncoder, Vectors, default_device, load_mean_pooled, load_pipeline
from downstream.encoders.folder import PIPELINE_FILE, ModelFolder
from downstream.encoders.hub import resolve

BUNDLED = package_path("downstream", "bundled", "embedder")
BATCH_SIZE = 64
WINDOW = 8192
"""Texts that are tokenized and sorted by length at a time; bounds the memory besides that of the vectors."""
CHARACTERS_PER_TOKEN = 256
"""Characters that are tokenized per token of the model's length; the rest would be truncated anyway."""
LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def encode(
    texts: Iterable[str],
    *,
    model: "str | Path | Embedder | None" = None,
    batch_size: int = BATCH_SIZE,
    progress: bool = False,
) -> Vectors:
    """Encode texts as unit vectors; the inner product of two of them is their cosine similarity.

    Args:
        texts: any strings. They are normalized to NFC, lone surrogates become U+FFFD, and texts longer than the model's
            length are truncated. A text without tokens, such as the empty one, gets the vector of the special tokens.
        model: folder, hub id, known encoder or loaded `Embedder`; default: the bundled embedder.
        batch_size: texts per batch.
        progress: show a progress bar on a terminal.

    Returns:
        float32 (N, D) in the order of the texts, each row of length 1. The vector of a text does not depend on its
        batch, to within 1e-5.

    Raises:
        CheckpointError: the model is missing or unusable.
        ValueError: `texts` is a single string, or contains something other than strings.
    """
    embedder = model if isinstance(model, Embedder) else Embedder.load(model)
    return embedder.encode(texts, batch_size=batch_size, progress=progress)


@dataclass(frozen=True)
class Embedder:
    """A loaded model; see `Embedder.load`."""

    folder: Path
    encoder: PooledEncoder
    is_int8: bool = False
    """Whether the weights have 8 bits."""

    @classmethod
    def load(
        cls, source: "str | Path | None" = None, *, device: str | None = None, is_int8: bool = False
    ) -> "Embedder":
        """Load a model in single precision. The model that was loaded last is cached.

        Weights are read from safetensors only, and code in a model folder is never run.

        Args:
            source: folder, hub id or known encoder; default: the bundled embedder.
            device: PyTorch device, e.g. `cuda:1`; default: the first GPU for many texts, else the CPU, on which a plain
                BERT runs without importing PyTorch.
            is_int8: compute on the CPU with weights of 8 bits: faster, and the cosines change in the third digit.

        Raises:
            CheckpointError: the model is missing or unusable.
        """
        folder = bundled_embedder() if source is None else resolve(str(source))
        stamps = tuple((str(path), path.stat().st_mtime_ns) for path in model_files(folder))
        if is_int8 and device not in {None, "cpu"}:
            raise ValueError(f"device={device}: 8 bits run on the CPU only; leave the device out")
        return _load(folder.resolve(), None if is_int8 else device, stamps, is_int8)

    @property
    def device(self) -> str:
        """Device that encodes many texts, e.g. `cpu`."""
        return self.encoder.device or default_device()

    @property
    def dimension(self) -> int:
        """Length D of the vectors."""
        return self.encoder.dimension

    @property
    def max_length(self) -> int:
        """Tokens of a text that the model reads, special tokens included."""
        return self.encoder.max_length

    @property
    def num_parameters(self) -> int:
        """Number of parameters, those of the pooling included."""
        return self.encoder.num_parameters

    @property
    def sha256(self) -> str:
        """Digest of all files that determine the vectors."""
        return sha256(*model_files(self.folder))

    def encode(
        self,
        texts: Iterable[str],
        *,
        batch_size: int = BATCH_SIZE,
        progress: bool = False,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = True,
    ) -> Vectors:
        """Encode texts; see `downstream.embed.encode`. It can be called as sentence-transformers' `encode` is.

        Args:
            texts: any strings.
            batch_size: texts per batch.
            progress: show a progress bar on a terminal.
            show_progress_bar: sentence-transformers' name for `progress`; None: as `progress` says.
            convert_to_numpy: vectors are always NumPy arrays.
            convert_to_tensor: must be false.
            normalize_embeddings: vectors always have length 1.

        Raises:
            ValueError: `texts` is a single string or holds something else than strings, or other vectors are asked for.
        """
        from tqdm import tqdm

        if convert_to_tensor or not convert_to_numpy:
            raise ValueError("encode returns NumPy arrays; call torch.from_numpy on the result")
        if not normalize_embeddings:
            raise ValueError("encode returns vectors of length 1; load the folder with SentenceTransformer for others")
        progress = progress if show_progress_bar is None else show_progress_bar
        if isinstance(texts, str):
            raise ValueError("texts is a single string; give a list of strings")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} is less than 1")
        clean = [clean_text(text, self.max_length * CHARACTERS_PER_TOKEN) for text in texts]
        vectors = np.empty((len(clean), self.dimension), dtype=np.float32)
        compute = self.encoder.compute_for(sum(map(len, clean)))
        with tqdm(total=len(clean), desc="embed", unit="text", disable=None if progress else True) as bar:
            for first in range(0, len(clean), WINDOW):
                window = clean[first : first + WINDOW]
                vectors[first : first + len(window)] = compute(window, batch_size, bar.update)
        # In single precision the rounding error of a norm would exceed the last digit.
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)  # (N, 1)
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise CheckpointError(
                self.folder, "the model gives a zero or non-finite vector", "train or load another model"
            )
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit


def bundled_embedder() -> Path:
    """Return the folder of the bundled embedder.

    Raises:
        CheckpointError: this installation has none.
    """
    if not (BUNDLED / PIPELINE_FILE).is_file():
        train = "python -m downstream.embed train RECIPE --model ENCODER --out DIR"
        raise CheckpointError(BUNDLED, "no embedder is bundled", f"name one with model=…, or train one: {train}")
    return BUNDLED


def clean_text(text: object, limit: int | None = None) -> str:
    """Return TEXT in NFC, lone surrogates replaced by U+FFFD, cut to LIMIT characters.

    Raises:
        ValueError: TEXT is not a string.
    """
    if not isinstance(text, str):
        raise ValueError(f"a text is {text!r:.40}, not a string")
    return LONE_SURROGATES.sub("\ufffd", nfc(text)[:limit])


def model_files(folder: Path) -> list[Path]:
    """Return the files that determine the vectors of a model, in a fixed order."""
    modules = [path for kind in ("*/*.json", "*/*.safetensors") for path in folder.glob(kind)]
    return ModelFolder(folder).digest_files() + sorted(path for path in modules if (folder / PIPELINE_FILE).is_file())


@functools.lru_cache(maxsize=1)
def _load(folder: Path, device: str | None, _stamps: tuple[tuple[str, int], ...], is_int8: bool) -> Embedder:
    """Load a model; the time stamps keep the cache from serving a folder that has changed."""
    check_is_safe(folder)
    settings = read_settings(folder) if (folder / PIPELINE_FILE).is_file() else None
    if settings is None or is_mean_pooling(settings):
        return Embedder(folder, load_mean_pooled(folder, settings, device, is_int8=is_int8), is_int8)
    if is_int8:
        raise CheckpointError(folder, "8 bits need mean pooling and nothing else", "load it without is_int8")
    return Embedder(folder, load_pipeline(folder, device or default_device()))
