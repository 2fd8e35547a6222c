"""Texts in, unit vectors out.

A model is a sentence-transformers folder. An encoder without pooling, such as kpfBERT, gets the mean of its token
vectors, [CLS] and [SEP] included and padding left out: what Reimers and Gurevych 2019 found best (section 6), and what
kpfSBERT does.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.documents import nfc
from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import package_path, sha256
from downstream.embeddings.pipeline import check_is_safe, is_mean_pooling, read_settings
from downstream.embeddings.pooling import PooledEncoder, Vectors, default_device, load_mean_pooled, load_pipeline
from downstream.encoders.folder import PIPELINE_FILE, ModelFolder
from downstream.encoders.hub import resolve

BUNDLED = package_path("downstream", "bundled", "embedder")
BATCH_SIZE = 64
WINDOW = 8192
"""Texts that are tokenised and sorted at a time: memory does not grow with the number of texts, but for the vectors."""
CHARACTERS_PER_TOKEN = 256
"""Characters that are looked at, for every token that a model takes; what is behind them would be cut off anyway."""
LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def encode(
    texts: Iterable[str],
    *,
    model: "str | Path | Embedder | None" = None,
    batch_size: int = BATCH_SIZE,
    progress: bool = False,
) -> Vectors:
    """Embed texts; the cosine of two vectors, which is their inner product, says how alike the texts are.

    Args:
        texts: any strings. They enter as NFC, lone surrogates as U+FFFD. What exceeds the model's length is cut off at
            the end. A text without a token, such as the empty one, gets the vector of the special tokens alone.
        model: folder, hub id, known encoder or loaded `Embedder`; default: the bundled embedder.
        batch_size: texts that are computed together.
        progress: show a bar on a terminal.

    Returns:
        float32 (N, D), one row of length 1 for each text, in the order of the texts. A text has the same vector
        alone and in any batch, to within 1e-5.

    Raises:
        CheckpointError: the model is missing or unusable.
        ValueError: `texts` is one string, or holds something else than strings.
    """
    embedder = model if isinstance(model, Embedder) else Embedder.load(model)
    return embedder.encode(texts, batch_size=batch_size, progress=progress)


@dataclass(frozen=True)
class Embedder:
    """A loaded model; see `Embedder.load`."""

    folder: Path
    encoder: PooledEncoder

    @classmethod
    def load(cls, source: "str | Path | None" = None, *, device: str | None = None) -> "Embedder":
        """Load a model in single precision. The one that was loaded last is kept, and not loaded again.

        Weights are read from safetensors only, and no code that comes with a model is run.

        Args:
            source: folder, hub id or known encoder; default: the bundled embedder.
            device: of PyTorch, e.g. `cuda:1`; default: the first GPU, else the CPU, where onnxruntime computes a plain
                BERT. A few thousand titles are computed there before PyTorch could look for a GPU.

        Raises:
            CheckpointError: the model is missing or unusable.
        """
        folder = bundled_embedder() if source is None else resolve(str(source))
        stamps = tuple((str(path), path.stat().st_mtime_ns) for path in model_files(folder))
        return _load(folder.resolve(), device, stamps)

    @property
    def device(self) -> str:
        """Where many texts are computed, e.g. `cpu`."""
        return self.encoder.device or default_device()

    @property
    def dimension(self) -> int:
        """Length D of the vectors."""
        return self.encoder.dimension

    @property
    def max_length(self) -> int:
        """Tokens that are read of a text, special tokens included."""
        return self.encoder.max_length

    @property
    def num_parameters(self) -> int:
        """Number of weights, the pooling's included."""
        return self.encoder.num_parameters

    @property
    def sha256(self) -> str:
        """Digest of all files that decide the vectors."""
        return sha256(*model_files(self.folder))

    def encode(self, texts: Iterable[str], *, batch_size: int = BATCH_SIZE, progress: bool = False) -> Vectors:
        """Embed texts; see `downstream.embed.encode`."""
        from tqdm import tqdm

        if isinstance(texts, str):
            raise ValueError("texts is one string; give a list of strings")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} is less than 1")
        clean = [clean_text(text, self.max_length * CHARACTERS_PER_TOKEN) for text in texts]
        vectors = np.empty((len(clean), self.dimension), dtype=np.float32)
        compute = self.encoder.compute_for(sum(map(len, clean)))
        with tqdm(total=len(clean), desc="embed", unit="text", disable=None if progress else True) as bar:
            for first in range(0, len(clean), WINDOW):
                window = clean[first : first + WINDOW]
                vectors[first : first + len(window)] = compute(window, batch_size, bar.update)
        # A length from single precision would be off by more than the last digit.
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)  # (N, 1)
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise CheckpointError(self.folder, "the model gives vectors without a direction", "train or load another")
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit


def bundled_embedder() -> Path:
    """Return the folder of the embedder that comes with the package.

    Raises:
        CheckpointError: there is none in this installation.
    """
    if not (BUNDLED / PIPELINE_FILE).is_file():
        train = "python -m downstream.embed train RECIPE --model ENCODER --out DIR"
        raise CheckpointError(BUNDLED, "no embedder is bundled", f"name one with model=…, or train one: {train}")
    return BUNDLED


def clean_text(text: object, limit: int | None = None) -> str:
    """Return TEXT as models see it: NFC, lone surrogates as U+FFFD, at most LIMIT characters.

    Raises:
        ValueError: it is no string.
    """
    if not isinstance(text, str):
        raise ValueError(f"a text is {text!r:.40}, which is no string")
    return LONE_SURROGATES.sub("\ufffd", nfc(text)[:limit])


def model_files(folder: Path) -> list[Path]:
    """Return the files that decide the vectors of a model, in a fixed order."""
    modules = [path for kind in ("*/*.json", "*/*.safetensors") for path in folder.glob(kind)]
    return ModelFolder(folder).digest_files() + sorted(path for path in modules if (folder / PIPELINE_FILE).is_file())


@functools.lru_cache(maxsize=1)
def _load(folder: Path, device: str | None, _stamps: tuple[tuple[str, int], ...]) -> Embedder:
    """Load a model; STAMPS make a folder that was written anew another one."""
    check_is_safe(folder)
    settings = read_settings(folder) if (folder / PIPELINE_FILE).is_file() else None
    if settings is None or is_mean_pooling(settings):
        return Embedder(folder, load_mean_pooled(folder, settings, device))
    return Embedder(folder, load_pipeline(folder, device or default_device()))
