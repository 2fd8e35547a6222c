"""Run networks and fine-tuned models on a CPU, inputs of like length together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.errors import CheckpointError
from downstream.encoders.tokenizers import load_tokenizer
from downstream.runtimes.graph import Batch, Forward
from downstream.runtimes.network import Finetuned, Network, finetuned_network, pooled_network, read_finetuned
from downstream.runtimes.plain_bert import PlainTokenizer, is_plain_bert
from downstream.runtimes.probes import lognormal_lengths, probe_texts, share_parallel
from downstream.runtimes.selection import Choice, choose
from downstream.runtimes.weights import FloatArray
from downstream.task import Features, Prediction

if TYPE_CHECKING:
    from downstream.embed import Embedder

MAX_BATCH_TOKENS = 2048
"""Tokens that are computed together, padding included: more gain nothing on one core and hold up shorter requests."""
MAX_PADDING = 0.15
"""Share of a batch that may be padding."""
EMBEDDER_CHECKS = 8
"""Texts on which an embedder on another backend is compared with itself."""


@dataclass(frozen=True)
class Runtime:
    """A network that is ready to run. Not for several threads at a time."""

    network: Network
    choice: Choice
    _forward: Forward

    @classmethod
    def load(
        cls, source: str | Path | Network, runtime: str = "auto", *, threads: int = 1, root: Path | None = None
    ) -> "Runtime":
        """Make a network ready to run.

        Args:
            source: folder that `downstream.finetune` saved, or any network.
            runtime: `auto`, `onnx`, or one backend such as `onnx-int8`; a key of `downstream.runtimes.backends.WORDS`.
            threads: that compute; one for each worker process serves the most requests.
            root: folder of the cache for choices; default: in the user's cache.

        Raises:
            UsageError: the runtime is unknown or unsupported on this machine.
            CheckpointError: the folder is no finished fine-tuning, or cannot be run by this backend.
        """
        network = source if isinstance(source, Network) else finetuned_network(read_finetuned(Path(source)))
        choice, forward = choose(network, runtime, threads=threads, root=root)
        return cls(network, choice, forward)

    @property
    def name(self) -> str:
        """The backend, e.g. `onnx-int8`."""
        return self.choice.chosen

    def run(self, batch: Batch) -> FloatArray:
        """Compute a batch.

        Args:
            batch: every name of `network.inputs` → int64 (B, T), padded to the longest.

        Returns:
            float32 (B, …): what the family of a fine-tuned model decodes, e.g. logits (B, C).

        Raises:
            ValueError: an input is missing.
        """
        if missing := [name for name in self.network.inputs if name not in batch]:
            raise ValueError(f"the batch lacks {', '.join(missing)}")
        return self._forward(batch)

    def run_features(self, features: Sequence[Features], *, padding: int) -> list[FloatArray]:
        """Compute features of any lengths, those of like length together; one output row for each, in their order.

        Args:
            features: token ids and the other inputs as lists.
            padding: id of the padding token.
        """
        outputs: list[FloatArray] = [np.empty(0, dtype=np.float32)] * len(features)
        for chosen in plan_batches([len(feature["input_ids"]) for feature in features]):
            rows = self.run(collate([features[k] for k in chosen], self.network.inputs, padding=padding))
            for k, row in zip(chosen, rows, strict=True):
                outputs[k] = row
        return outputs


def plan_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Divide inputs into batches of like length, from the longest on; yields their indices.

    No batch is larger than `MAX_BATCH_TOKENS`, unless it is one input, or has more than `MAX_PADDING` padding.
    """
    batch: list[int] = []
    tokens = 0
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        longest = lengths[batch[0]] if batch else lengths[k]
        size = longest * (len(batch) + 1)
        if batch and (size > MAX_BATCH_TOKENS or size - tokens - lengths[k] > MAX_PADDING * size):
            yield batch
            batch, tokens = [], 0
        batch.append(k)
        tokens += lengths[k]
    if batch:
        yield batch


def collate(features: Sequence[Features], names: Sequence[str], *, padding: int) -> Batch:
    """Return features as one batch, int64 (B, T), padded on the right to the longest."""
    length = max(len(feature["input_ids"]) for feature in features)
    batch = {
        name: np.full((len(features), length), padding if name == "input_ids" else 0, dtype=np.int64) for name in names
    }
    for name, array in batch.items():
        for row, feature in zip(array, features, strict=True):
            row[: len(feature[name])] = feature[name]
    return batch


@dataclass(frozen=True)
class Predictor:
    """A fine-tuned model from raw examples to predictions."""

    finetuned: Finetuned
    runtime: Runtime

    @classmethod
    def load(
        cls, folder: str | Path, runtime: str = "auto", *, threads: int = 1, root: Path | None = None
    ) -> "Predictor":
        """Load a folder that `downstream.finetune` saved; see `Runtime.load`."""
        finetuned = read_finetuned(Path(folder))
        return cls(finetuned, Runtime.load(finetuned_network(finetuned), runtime, threads=threads, root=root))

    def outputs(self, examples: Sequence[Any]) -> tuple[list[FloatArray], list[Features]]:
        """Return features of the examples, at least one each, and an output row for each feature."""
        features = self.finetuned.family.featurize(
            examples, self.finetuned.tokenizer, self.finetuned.max_length, with_labels=False
        )
        return self.runtime.run_features(features, padding=int(self.finetuned.tokenizer.pad_token_id or 0)), features

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        """Predict examples, all of them pairs or none; one prediction for each, in their order."""
        if not examples:
            return []
        rows, features = self.outputs(examples)
        return self.finetuned.family.decode(rows, features, examples)


def fast_embedder(
    embedder: "Embedder", runtime: str = "auto", *, threads: int = 1, root: Path | None = None
) -> tuple["Embedder", Runtime]:
    """Return an embedder of the same vectors that runs on another backend, and what runs it.

    Args:
        embedder: of `downstream.embed`, an encoder with mean pooling.
        runtime: see `Runtime.load`.
        threads: that compute.
        root: see `Runtime.load`.

    Raises:
        CheckpointError: the embedder is something else than the mean of an encoder's token vectors.
        UsageError: the runtime is unknown or unsupported on this machine.
    """
    folder = embedder.folder
    tokenizer: Any = PlainTokenizer.load(folder) if is_plain_bert(folder) else load_tokenizer(folder)
    loaded = Runtime.load(pooled_network(embedder.folder, tokenizer), runtime, threads=threads, root=root)
    names = loaded.network.inputs

    def compute(texts: Sequence[str], _batch_size: int, advance: Callable[[int], object]) -> FloatArray:
        encoded = tokenizer(list(texts), truncation=True, max_length=embedder.max_length)
        features: list[Features] = [{name: encoded[name][k] for name in names} for k in range(len(texts))]
        rows = loaded.run_features(features, padding=int(tokenizer.pad_token_id or 0))
        advance(len(texts))
        return np.stack(rows)

    fast = replace(embedder, encoder=replace(embedder.encoder, device="cpu", compute_for=lambda _: compute))
    texts = probe_texts(tokenizer, lognormal_lengths(EMBEDDER_CHECKS))
    own, other = embedder.encode(texts), compute(texts, 1, int)
    if own.shape != other.shape or share_parallel(list(own), list(other)) < 1:
        what = "its vectors are not the means of its token vectors"
        raise CheckpointError(embedder.folder, what, "use the embedder as it is")
    return fast, loaded
