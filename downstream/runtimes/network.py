"""What a backend runs: a description of a network of token ids. Nothing is loaded before it is needed.

`finetuned_network` describes the folder of a finished fine-tuning, `pooled_network` an encoder whose text vector is the
mean of its token vectors.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import no_file_bars, quiet_transformers
from downstream.encoders.folder import ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.finetuning.prediction import load_finetuned
from downstream.finetuning.result import RESULT_FILE, read_result
from downstream.runtimes.graph import Head
from downstream.runtimes.plain_bert import PlainTokenizer, is_plain_bert
from downstream.runtimes.probes import ProbeInputs, pooled_probe, task_probe
from downstream.runtimes.weights import EncoderWeights
from downstream.task import Family, Task, get_task

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

SEQUENCE_HEAD = "AutoModelForSequenceClassification"
HEADS: Mapping[str, Head] = {
    SEQUENCE_HEAD: "labels",
    "AutoModelForQuestionAnswering": "spans",
    "AutoModelForTokenClassification": "tags",
}
"""Class that loads a family's head → what it computes."""


@dataclass(frozen=True)
class Network:
    """A function of token ids that is to be run: what it is, before anything is loaded."""

    where: str
    """Folder, for messages."""
    digest: str
    """Of all that decides the outputs: weights, config, tokenizer, head."""
    inputs: tuple[str, ...]
    """Names of the inputs, int64 (B, T), in the order of `forward`; `input_ids` and `attention_mask` are among them."""
    head: Head
    """What is computed of the last layer."""
    build: Callable[[], "nn.Module"]
    """Loads the reference: the network as transformers computes it. Its output is one float tensor, B first."""
    weights: Callable[[], EncoderWeights]
    """Loads the same weights without torch."""
    probe: Callable[[], ProbeInputs]
    """Makes the inputs with which backends are compared."""


# --- fine-tuned folders -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finetuned:
    """What is known of a fine-tuned folder without its weights."""

    folder: Path
    task: Task
    tokenizer: "PreTrainedTokenizerBase"
    """A `PlainTokenizer`, which is ready much sooner, where it can do all that the family asks for."""
    max_length: int
    """Longest input in tokens, as the model was trained."""

    @property
    def model(self) -> ModelFolder:
        """The folder as such."""
        return ModelFolder(self.folder)

    @property
    def family(self) -> Family:
        """The task's."""
        return self.task.family

    @property
    def num_parameters(self) -> int:
        """Of the encoder, head left out, as in results."""
        return self.model.num_parameters

    @property
    def size_bytes(self) -> int:
        """Of the weights on disk, head included."""
        return self.model.weights_bytes


def read_finetuned(folder: Path) -> Finetuned:
    """Read all of a fine-tuned folder but its weights.

    Raises:
        CheckpointError: the folder is no finished fine-tuning.
    """
    task = get_task(ModelFolder(folder).task_name)
    is_light = task.family.auto_class == SEQUENCE_HEAD and is_plain_bert(folder)
    tokenizer: Any = PlainTokenizer.load(folder) if is_light else load_tokenizer(folder)
    max_length = ModelFolder(folder).max_length or task.finetune.max_length
    if (folder / RESULT_FILE).is_file():
        recipe = read_result(folder / RESULT_FILE).recipe
        max_length = int(recipe.get("finetune", {}).get("max_length", max_length))
    return Finetuned(folder, task, tokenizer, min(max_length, int(tokenizer.model_max_length)))


def finetuned_network(finetuned: Finetuned) -> Network:
    """Describe a fine-tuned model; its output is what its family's `decode` takes.

    Raises:
        CheckpointError: no backend runs models of this kind.
    """
    family, names = finetuned.family, tuple(finetuned.tokenizer.model_input_names)
    if finetuned.model.has_bilstm:
        what = "a BiLSTM on top of its encoder runs on no backend"
        raise CheckpointError(finetuned.folder, what, "use downstream.finetune.predict, or fine-tune without features=")
    if family.auto_class not in HEADS:
        what = f"models for {finetuned.task.title} run on no backend"
        raise CheckpointError(finetuned.folder, what, "use downstream.finetune.predict")

    def build() -> "nn.Module":
        with no_file_bars():
            return with_head(load_finetuned(finetuned.folder)[0], family, names)

    files = {
        "files": finetuned.model.digest(),
        "head": family.auto_class,
        "max_length": finetuned.max_length,
    }
    return Network(
        where=str(finetuned.folder),
        digest=fingerprint(files),
        inputs=names,
        head=HEADS[family.auto_class],
        build=build,
        weights=lambda: EncoderWeights.from_folder(finetuned.folder),
        probe=functools.cache(lambda: task_probe(finetuned.task, finetuned.tokenizer, finetuned.max_length)),
    )


def with_head(model: Any, family: Family, names: Sequence[str]) -> "nn.Module":
    """Return the model as a function from its inputs, in order, to what its family decodes."""
    from torch import nn

    class WithHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: "Tensor") -> "Tensor":
            """Return what `Family.logits` does."""
            output: Tensor = family.logits(self.model, dict(zip(names, inputs, strict=True)))
            return output

    return WithHead().eval()


# --- encoders ---------------------------------------------------------------------------------------------------------


def pooled_network(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> Network:
    """Describe an encoder whose output is the mean of its token vectors, float (B, D), of any length."""
    names = tuple(tokenizer.model_input_names)

    def build() -> "nn.Module":
        with quiet_transformers():
            return _pooled(load_model(folder, load_tokenizer(folder), SEQUENCE_HEAD, {}).base_model, names)

    return Network(
        where=str(folder),
        digest=fingerprint({"files": ModelFolder(folder).digest(), "head": "mean"}),
        inputs=names,
        head="mean",
        build=build,
        weights=lambda: EncoderWeights.from_folder(folder),
        probe=functools.cache(lambda: pooled_probe(tokenizer)),
    )


def _pooled(model: Any, names: Sequence[str]) -> "nn.Module":
    from torch import nn

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: "Tensor") -> "Tensor":
            """Return the mean (B, D) over the tokens that are no padding."""
            batch = dict(zip(names, inputs, strict=True))
            states = self.model(**batch).last_hidden_state  # (B, T, D)
            seen = batch["attention_mask"].unsqueeze(-1).to(states.dtype)  # (B, T, 1)
            mean: Tensor = (states * seen).sum(dim=1) / seen.sum(dim=1)
            return mean

    return Pooled().eval()
