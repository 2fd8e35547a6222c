"""A BiLSTM on an encoder's layers: features of a frozen encoder, or a head for a left-to-right encoder.

`FinetuneConfig.features` selects the layers it reads. With a frozen encoder this is the feature-based approach of
Devlin et al. 2019, section 5.3: the encoder is not trained, and its dropout is off. With `last` and a trained encoder
it is the BiLSTM that section 5.1 puts on the left-to-right model. It has two layers as in the paper, and the encoder's
width; the paper's 768 is the width of BERT base.

A saved folder holds the encoder's config.json with an entry `bilstm`, all weights in `bilstm.safetensors`, and the
tokenizer. `downstream.finetune.load_finetuned` opens it. There is no `model.safetensors`, so that loading it as a plain
transformers folder fails instead of returning random weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from corpora.foundation.errors import CheckpointError, RecipeError
from downstream.encoders.folder import BILSTM_KEY
from downstream.encoders.weights import load_model
from downstream.task import Family, FinetuneConfig
from pretraining.folders import check_sizes, count_stored, open_config, read_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WEIGHTS_FILE = "bilstm.safetensors"
NUM_LSTM_LAYERS = 2
LAST = 4
"""Number of layers that `last-four` concatenates."""
KINDS = {
    "AutoModelForSequenceClassification": "sequence",
    "AutoModelForTokenClassification": "tokens",
    "AutoModelForQuestionAnswering": "span",
}
"""Class that loads the family's usual head → what the BiLSTM's outputs belong to."""


class BiLstmModel(nn.Module):
    """An encoder, a BiLSTM on its layers, and a linear layer. B texts, T tokens, D hidden, C outputs."""

    base_model_prefix = "encoder"

    def __init__(self, encoder: Any, *, layers: str, kind: str, num_outputs: int, is_frozen: bool) -> None:
        """Put a randomly initialised head on ENCODER.

        Args:
            encoder: a transformers encoder without head.
            layers: what the BiLSTM reads.
            kind: `sequence`, `tokens` or `span`.
            num_outputs: classes, or 1 for a score.
            is_frozen: whether the encoder is not trained.
        """
        super().__init__()
        self.encoder, self.config = encoder, encoder.config
        self._layers, self._kind, self._is_frozen = layers, kind, is_frozen
        width = int(encoder.config.hidden_size)
        self.layer_weights = nn.Parameter(torch.zeros(int(encoder.config.num_hidden_layers)))
        self.layer_weights.requires_grad_(layers == "weighted-sum")
        self.lstm = nn.LSTM(
            width * (LAST if layers == "last-four" else 1),
            width,
            num_layers=NUM_LSTM_LAYERS,
            bidirectional=True,
            batch_first=True,
            dropout=0.1,
        )
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(2 * width, num_outputs)
        if is_frozen:
            self.encoder.requires_grad_(requires_grad=False)

    @property
    def base_model(self) -> Any:
        """The encoder."""
        return self.encoder

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.output.weight.device

    def train(self, mode: bool = True) -> "BiLstmModel":
        """Set the mode; a frozen encoder stays without dropout."""
        super().train(mode)
        if self._is_frozen:
            self.encoder.eval()
        return self

    def forward(
        self,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **inputs: Tensor,
    ) -> Any:
        """Return outputs as transformers' classes of the same kind do; `loss` where there are labels."""
        states = self._features(inputs)  # (B, T, k·D)
        lengths = inputs["attention_mask"].sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
        read, (last, _) = self.lstm(packed)
        if self._kind == "sequence":
            # What the forward direction ends in, and the backward one, of the upper layer.
            return _sequence_output(self.output(self.dropout(torch.cat([last[-2], last[-1]], dim=-1))), labels)
        tokens, _ = nn.utils.rnn.pad_packed_sequence(read, batch_first=True, total_length=states.shape[1])
        logits = self.output(self.dropout(tokens))  # (B, T, C)
        if self._kind == "tokens":
            return _tokens_output(logits, labels)
        return _span_output(logits, start_positions, end_positions)

    def _features(self, inputs: Mapping[str, Tensor]) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._is_frozen):
            hidden = self.encoder(**inputs, output_hidden_states=True).hidden_states
        if self._layers == "weighted-sum":
            stacked = torch.stack(hidden[1:], dim=-1)  # (B, T, D, L)
            return stacked @ self.layer_weights.softmax(0)
        if self._layers == "last-four":
            return torch.cat(hidden[-LAST:], dim=-1)
        tensor: Tensor = hidden[{"embeddings": 0, "second-to-last": -2, "last": -1}[self._layers]]
        return tensor

    def save_pretrained(self, folder: Path) -> None:
        """Write config.json and the weights."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        self.config.save_pretrained(folder)
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, folder / WEIGHTS_FILE)


def _sequence_output(logits: Tensor, labels: Tensor | None) -> Any:
    from transformers.modeling_outputs import SequenceClassifierOutput

    loss = None
    if labels is not None and logits.shape[-1] == 1:
        loss = F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
    elif labels is not None:
        loss = F.cross_entropy(logits, labels)
    return SequenceClassifierOutput(loss=loss, logits=logits)


def _tokens_output(logits: Tensor, labels: Tensor | None) -> Any:
    from transformers.modeling_outputs import TokenClassifierOutput

    loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return TokenClassifierOutput(loss=loss, logits=logits)


def _span_output(logits: Tensor, start: Tensor | None, end: Tensor | None) -> Any:
    from transformers.modeling_outputs import QuestionAnsweringModelOutput

    starts, ends = logits.unbind(-1)  # (B, T) each
    loss = None
    if start is not None and end is not None:
        loss = (F.cross_entropy(starts, start) + F.cross_entropy(ends, end)) / 2
    return QuestionAnsweringModelOutput(loss=loss, start_logits=starts, end_logits=ends)


def build(folder: Path, tokenizer: "PreTrainedTokenizerBase", family: Family, config: FinetuneConfig) -> BiLstmModel:
    """Load an encoder and put a new BiLSTM on it.

    Args:
        folder: of the encoder.
        tokenizer: its tokenizer.
        family: of the task.
        config: `features` and `frozen` define what the BiLSTM reads.

    Raises:
        RecipeError: the family has no such head, or the encoder has too few layers.
        CheckpointError: the encoder cannot be read.
    """
    _check_family(family)
    encoder = load_model(folder, tokenizer, "AutoModel", {})
    if config.features == "last-four" and encoder.config.num_hidden_layers < LAST:
        what = f"the encoder has {encoder.config.num_hidden_layers} layers"
        raise RecipeError("features=last-four", what, "use features=weighted-sum")
    setattr(encoder.config, BILSTM_KEY, {"features": config.features, "frozen": config.frozen})
    return _assemble(encoder, family)


def load(folder: Path, family: Family) -> BiLstmModel:
    """Load a folder written by `BiLstmModel.save_pretrained`, in single precision.

    Raises:
        CheckpointError: the weights are missing or damaged, or do not fit the config.
    """
    from transformers import AutoModel

    auto_model: Any = AutoModel  # not annotated
    config = open_config(folder)
    check_sizes(folder, config, count_stored([folder / WEIGHTS_FILE]))
    try:
        model = _assemble(auto_model.from_config(config), family)
        model.load_state_dict(read_tensors(folder / WEIGHTS_FILE))
    except (OSError, RuntimeError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(
            folder, f"the model cannot be read ({error})".splitlines()[0], "train it again"
        ) from error
    return model.eval()


def _assemble(encoder: Any, family: Family) -> BiLstmModel:
    settings = getattr(encoder.config, BILSTM_KEY)
    kind = KINDS[family.auto_class]
    head = family.head_config()
    num_outputs = 2 if kind == "span" else len(head.get("id2label", ())) or 1
    return BiLstmModel(
        encoder, layers=settings["features"], kind=kind, num_outputs=num_outputs, is_frozen=settings["frozen"]
    )


def _check_family(family: Family) -> None:
    if family.auto_class not in KINDS:
        what = f"there is no BiLSTM head for {type(family).__name__} tasks"
        raise RecipeError("features", what, "use features=none")
