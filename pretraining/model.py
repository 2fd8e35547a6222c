"""An encoder of transformers for pretraining: packed rows in, losses out.

The network is transformers' own (`pretraining.architectures`), so that the result is a plain checkpoint.
Pretraining adds attention that is limited to the sequences of a packed row, and a vocabulary layer that computes the
masked positions only, slice by slice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from corpora.foundation.errors import CheckpointError
from pretraining.architectures import ARCHITECTURES
from pretraining.folders import check_folder, read_tensors
from pretraining.unpadded import encode_unpadded, text_layout, use_unpadded_attention

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

VOCAB_MULTIPLE = 64
"""The vocabulary is padded to a multiple of it, which matrix kernels need to be fast; export removes the padding."""
GENERATOR_BIAS = "generator.bias"
"""Parameter of an objective with a value for every vocabulary entry."""
SLICE = 256
"""Masked positions whose vocabulary scores are computed at a time."""
ROW_MULTIPLE = 64
"""Masked positions are filled up to a multiple of it where every other number of rows would be compiled by itself."""
CACHE_BYTES = 1 << 20
"""Scores that are turned into probabilities at a time on a CPU; its second-level caches have one megabyte or more."""
OBJECTIVE_PARTS_FILE = "objective.safetensors"
"""Beside a finished model: parameters that transformers has no name for, such as ELECTRA's generator."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of training: forward, plus twice that backward. Source: Kaplan et al. 2020, table 1."""

    per_token: float
    per_position: float
    """Per pair of a token and a token that it attends to."""
    per_prediction: Mapping[str, float]
    """By the name of the loss term; missing ones are negligible."""

    def total(self, counts: Mapping[str, float], length: int) -> float:
        """Return the operations of one or more steps.

        Args:
            counts: `tokens`, and predictions by the name of their loss term.
            length: tokens of a row; attention scores are computed between all of them.
        """
        heads = sum(counts.get(name, 0.0) * flops for name, flops in self.per_prediction.items())
        return counts.get("tokens", 0.0) * (self.per_token + self.per_position * length) + heads


def layer_flops(encoder: nn.Module) -> float:
    """Return the training operations per token of a stack of layers, without attention scores."""
    return 6.0 * sum(p.numel() for p in encoder.parameters() if p.ndim > 1)


class PretrainingModel(nn.Module):
    """Base class of the models of all objectives; each adds its heads and its `forward`.

    `forward` takes a batch from the objective's `inputs`, and returns `NAME_loss` and `NAME_correct` for each loss
    term: float32 scalars, summed over the term's predictions. The caller divides by the number of predictions.

    Shapes: B rows, T tokens, D hidden, E embedding, M masked positions, Q sequences, V vocabulary.
    """

    unpads = True
    """Whether `encode` may leave padding out, where the architecture can (`pretraining.unpadded`)."""

    def __init__(self, config: "PreTrainedConfig", *, next_sentence: bool) -> None:
        """Build the network with random weights.

        Args:
            config: of the network as it will be saved; `vocab_size` is padded here.
            next_sentence: whether to add a next-sentence head.
        """
        super().__init__()
        self.architecture = ARCHITECTURES[config.model_type]
        self.vocab_size = int(config.vocab_size)
        self.next_sentence = next_sentence
        self.is_unpadded = False
        padded_size = -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        padded = type(config).from_dict(config.to_dict() | {"vocab_size": padded_size})
        self.network: Any = self.architecture.build(padded, next_sentence=next_sentence)

    @property
    def encoder(self) -> Any:
        """The network without heads."""
        return self.architecture.encoder(self.network)

    def has_vocabulary(self, name: str) -> bool:
        """Whether a parameter has a row for every vocabulary entry."""
        return name == GENERATOR_BIAS or name in self.architecture.vocab_parameters

    def load(self, weights: Mapping[str, Tensor], num_positions: int | None = None) -> list[str]:
        """Load the weights of a saved network, padding the vocabulary; return the names of missing parameters.

        A network with fewer positions, from a phase on shorter rows, gives the first ones; the others begin as copies
        of them (Beltagy et al. 2020, “Longformer”, section 5).

        Args:
            weights: by the names of transformers' classes, and of this model's own parts.
            num_positions: first positions that are taken; None: all.

        Raises:
            ValueError: a shape differs.
        """
        missing = []
        with torch.no_grad():
            for own_name, parameter in self.named_parameters():
                name = own_name.removeprefix("network.")
                if name not in weights:
                    missing.append(name)
                    continue
                given = weights[name]
                length = self.vocab_size if self.has_vocabulary(name) else len(parameter)
                if self.architecture.has_positions(name):
                    given = given[:num_positions]
                    if len(given) < length:
                        given = given.repeat(-(-length // len(given)), 1)[:length]
                if tuple(given.shape) != (length, *parameter.shape[1:]):
                    raise ValueError(f"{name} is {tuple(given.shape)}, not {(length, *parameter.shape[1:])}")
                parameter[:length] = given
        return missing

    def use_attention(self, device: torch.device) -> None:
        """Choose the attention implementation for a device.

        On CPUs plain matrix products are faster than PyTorch's fused attention, whose backward pass with a mask is slow
        there (`benchmarks/pretraining.py`); on GPUs fused attention is faster.
        """
        self.is_unpadded = self.unpads and self.architecture.can_unpad
        if self.is_unpadded:
            use_unpadded_attention(self.network)
            return
        self.network.set_attn_implementation("eager" if device.type == "cpu" else "sdpa")

    def prepare_batch(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Add to a batch, still on the CPU, what `forward` would otherwise have to read from the device."""
        if not self.is_unpadded:
            return dict(batch)
        positions, borders = text_layout(batch["sequence_ids"])
        return {**batch, "text_positions": positions, "sequence_borders": borders}

    def recompute_activations(self) -> None:
        """Let the layers compute their activations again in the backward pass instead of keeping them."""
        older: Any = self.network.gradient_checkpointing_enable
        enable = getattr(self.network, "activation_checkpointing_enable", older)  # transformers 5.23 has a new name
        enable({"use_reentrant": False})

    def encode(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        layout: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Return the last hidden states, (B, T, D), of rows of packed sequences; LAYOUT as in `encode_unpadded`."""
        if self.is_unpadded:
            return encode_unpadded(self.encoder, input_ids, position_ids, sequence_ids, layout)
        return self.encode_visible(input_ids, token_type_ids, position_ids, self.visible(sequence_ids))

    def encode_visible(
        self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor, visible: Tensor
    ) -> Tensor:
        """Return the last hidden states, (B, T, D), where VISIBLE, bool (B, 1, T, T), says what tokens attend to."""
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "position_ids": position_ids}
        return self.architecture.encode(self.network, given | {"attention_mask": visible}, self._attention_mask)

    def visible(self, sequence_ids: Tensor) -> Tensor:
        """Return which tokens attend to which, bool (B, 1, T, T): those of the same sequence."""
        return sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :]

    def attention_mask(self, sequence_ids: Tensor) -> Tensor:
        """Return the mask of `visible` in the form that the attention implementation takes, (B, 1, T, T)."""
        return self._attention_mask(self.visible(sequence_ids))

    def _attention_mask(self, visible: Tensor) -> Tensor:
        """Return a mask in the form that the attention implementation takes, (B, 1, T, T)."""
        mask = visible
        if self.network.config._attn_implementation == "eager":
            # The eager implementation adds the mask to the scores.
            kind = _compute_dtype(self.network.dtype, visible.device)
            mask = torch.zeros(visible.shape, dtype=kind, device=visible.device)
            mask.masked_fill_(~visible, torch.finfo(kind).min)
        return mask

    def predict_masked(self, states: Tensor, masked_ids: Tensor) -> dict[str, Tensor]:
        """Return `mlm_loss` and `mlm_correct` of masked positions.

        Args:
            states: (M, D), last hidden states of the masked positions.
            masked_ids: int64 (M,), the original tokens.
        """
        transform, bias = self.architecture.head(self.network)
        loss, correct, _ = self.vocabulary_loss(transform(fill_rows(states)), bias, masked_ids)
        return {"mlm_loss": loss, "mlm_correct": correct}

    def pair_scores(self, states: Tensor) -> Tensor:
        """Return next-sentence scores, float32 (Q, 2), of pairs whose `[CLS]` has the hidden STATES, (Q, D)."""
        # The pooler reads the first position.
        pooled = self.network.bert.pooler(states.unsqueeze(1))
        scores: Tensor = self.network.cls.seq_relationship(pooled).float()
        return scores

    def scores(self, states: Tensor) -> Tensor:
        """Return vocabulary scores, (M, V), of masked positions; for objectives that need them all at once."""
        scores: Tensor = self.network.cls.predictions(states)
        return scores[:, : self.vocab_size]

    def vocabulary_loss(
        self, states: Tensor, bias: Tensor, labels: Tensor, draws: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the summed cross-entropy over the vocabulary, the number of correct predictions, and sampled tokens.

        Args:
            states: (≥ M, E), multiplied with the word embeddings; rows after the M-th are not counted (`fill_rows`).
            bias: (V,), padded.
            labels: int64 (M,).
            draws: (M,), uniform in [0, 1); each selects a token from the predicted distribution.

        Returns:
            Scalar, scalar, int64 (M,); the last is empty without draws.
        """
        loss, hits, drawn = self.vocabulary_hits(states, bias, labels, draws)
        return loss, hits.sum().float(), drawn

    def vocabulary_hits(
        self, states: Tensor, bias: Tensor, labels: Tensor, draws: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `vocabulary_loss` returns, with bool (M,), the correct predictions, instead of their number."""
        function: Any = _VocabularyLoss.apply  # not annotated
        weight = self.network.get_input_embeddings().weight
        result: tuple[Tensor, Tensor, Tensor] = function(
            states, weight, bias, labels, draws, self.vocab_size, torch.is_grad_enabled()
        )
        return result

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step."""
        config = self.network.config
        width = self.network.get_input_embeddings().embedding_dim
        head = 6.0 * width * (config.hidden_size + self.vocab_size)
        layers = layer_flops(self.architecture.stack(self.network))
        # Layers that share their weights are computed as often as if they did not.
        layers *= config.num_hidden_layers / getattr(config, "num_hidden_groups", config.num_hidden_layers)
        # Scores within sequences of unknown lengths are left out.
        scores = 0.0 if self.is_unpadded else 12.0 * config.num_hidden_layers * config.hidden_size
        return Flops(layers, scores, {"mlm": head})

    def export(self, state: Mapping[str, Tensor], num_positions: int | None = None) -> "PreTrainedModel":
        """Return the network to save, without the padding of the vocabulary and without untrained positions.

        Args:
            state: this model's parameters by name.
            num_positions: positions that were trained; None: all.
        """
        config = self.network.config
        sizes: dict[str, int] = {"vocab_size": self.vocab_size}
        if num_positions:
            sizes["max_position_embeddings"] = num_positions
        config = type(config).from_dict(config.to_dict() | sizes)
        exported: PreTrainedModel = type(self.network)(config)
        with torch.no_grad():
            for name, parameter in exported.named_parameters():
                trained = state[f"network.{name}"]
                parameter.copy_(trained if trained.shape == parameter.shape else trained[: len(parameter)])
        return exported

    def variants(
        self,
        exported: "PreTrainedModel",  # noqa: ARG002
        state: Mapping[str, Tensor],  # noqa: ARG002
    ) -> "dict[str, PreTrainedModel]":
        """Return other forms of the network, by the name of their folder in that of the run.

        Args:
            exported: what `export` returned.
            state: this model's parameters by name.
        """
        return {}

    def objective_parts(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters that `export` leaves out, without padding; a run with `model.init` loads them."""
        parts = {name: tensor for name, tensor in state.items() if not name.startswith("network.")}
        return {name: part[: self.vocab_size] if self.has_vocabulary(name) else part for name, part in parts.items()}


class MaskedLanguageModel(PretrainingModel):
    """An encoder that predicts masked tokens and, as a BERT, optionally the next sentence."""

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        sequence_starts: Tensor | None = None,
        next_labels: Tensor | None = None,
        text_positions: Tensor | None = None,
        sequence_borders: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts; see `PretrainingModel`.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T), counted from the start of each sequence.
            sequence_ids: int64 (B, T); tokens attend to those of the same number, 0 is padding.
            masked_positions: int64 (M,), in the flattened batch.
            masked_ids: int64 (M,), the original tokens.
            sequence_starts: int64 (Q,), positions of `[CLS]` in the flattened batch, for the next-sentence head.
            next_labels: int64 (Q,), 1 for a random next sentence.
            text_positions: int64 (N,), as `pretraining.unpadded.text_layout` returns them; default: computed here.
            sequence_borders: int32 (S + 1,), likewise.

        Returns:
            `mlm_loss` (sum over M), `mlm_correct`, and with a next-sentence head `nsp_loss`, `nsp_correct` (sums over
            Q); float32 scalars.
        """
        layout = None if text_positions is None or sequence_borders is None else (text_positions, sequence_borders)
        hidden = self.encode(input_ids, token_type_ids, position_ids, sequence_ids, layout).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(hidden[masked_positions], masked_ids)
        if self.next_sentence and sequence_starts is not None and next_labels is not None:
            scores = self.pair_scores(hidden[sequence_starts])
            outputs["nsp_loss"] = F.cross_entropy(scores, next_labels, reduction="sum")
            outputs["nsp_correct"] = (scores.argmax(-1) == next_labels).sum().float()
        return outputs


def _compute_dtype(default: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else default


def fill_rows(states: Tensor) -> Tensor:
    """Return STATES, (M, D), with zeros up to a multiple of `ROW_MULTIPLE` rows where that is faster.

    In bf16 on a CPU, oneDNN compiles a matrix product for every shape; the number of predictions is another one in each
    step.
    """
    if states.device.type != "cpu" or _compute_dtype(states.dtype, states.device) != torch.bfloat16:
        return states
    return F.pad(states, (0, 0, 0, -len(states) % ROW_MULTIPLE))


class _VocabularyLoss(torch.autograd.Function):
    """Cross-entropy over the vocabulary, slice by slice; the forward pass computes the gradients too.

    The scores of all predictions, M × V numbers, would be by far the largest tensor of a step, read and written several
    times; a slice of them stays in the processor's cache.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        draws: Tensor | None,
        vocab_size: int,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the summed loss, which predictions are correct, and tokens sampled from the predictions.

        Args:
            ctx: of autograd.
            hidden: (≥ M, D); rows after the M-th only fill up.
            weight: (V, D) of the tied word embeddings, padded.
            bias: (V,).
            labels: int64 (M,).
            draws: (M,), uniform in [0, 1); None to sample nothing.
            vocab_size: scores beyond it are padding.
            with_gradients: whether there will be a backward pass.
        """
        device = hidden.device
        kind = _compute_dtype(hidden.dtype, device)
        words, biases = weight.to(kind), bias.to(kind)
        loss = torch.zeros((), dtype=torch.float32, device=device)
        hits = torch.zeros(len(labels), dtype=torch.bool, device=device)
        hidden_gradient = torch.empty_like(hidden) if with_gradients else None
        weight_gradient = torch.zeros_like(weight) if with_gradients else None
        bias_gradient = torch.zeros_like(bias) if with_gradients else None
        drawn = torch.empty(0 if draws is None else len(labels), dtype=torch.int64, device=device)
        with torch.autocast(device.type, enabled=False):
            for first in range(0, len(hidden), SLICE):
                some = slice(first, first + SLICE)
                states = hidden[some].to(kind)
                scores = F.linear(states, words, biases)
                length = _rows_in_cache(vocab_size) if device.type == "cpu" else SLICE
                num_labels = len(labels[some])
                for begin in range(0, num_labels, length):
                    own = scores[begin : min(begin + length, num_labels), :vocab_size]
                    part = slice(first + begin, first + begin + len(own))
                    probabilities, log_probabilities, hits[part] = _predict(own, labels[part])
                    loss -= log_probabilities.sum()
                    if draws is not None:
                        reached = probabilities.cumsum(1)
                        # Rounding may leave the last sum short of a draw near 1.
                        sampled = torch.searchsorted(reached, draws[part, None].to(reached.dtype) * reached[:, -1:])
                        drawn[part] = sampled.squeeze(1).clamp_(max=vocab_size - 1)
                    if bias_gradient is not None:
                        minus_one = torch.full_like(log_probabilities, -1)
                        gradient = probabilities.scatter_add_(1, labels[part, None], minus_one)
                        bias_gradient[:vocab_size] += gradient.sum(0)
                        own.copy_(gradient)
                if hidden_gradient is not None and weight_gradient is not None:
                    scores[:, vocab_size:] = 0
                    scores[num_labels:] = 0
                    hidden_gradient[some] = scores @ words
                    weight_gradient += scores.t() @ states
        if with_gradients:
            ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(hits, drawn)
        return loss, hits, drawn

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients of the forward pass."""
        hidden_gradient, weight_gradient, bias_gradient = ctx.saved_tensors
        scale = gradients[0]
        return hidden_gradient * scale, weight_gradient * scale, bias_gradient * scale, None, None, None, None


def _rows_in_cache(vocab_size: int) -> int:
    """Return the number of rows of float32 scores that a core's cache holds."""
    return max(1, CACHE_BYTES // (4 * vocab_size))


def _predict(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what scores predict.

    Args:
        scores: (M, V); those in float32 may be overwritten.
        labels: int64 (M,).

    Returns:
        Probabilities, float32 (M, V); the logarithms of those of the labels, float32 (M, 1); which labels are
        predicted, bool (M,).
    """
    if scores.device.type != "cpu":
        logarithms = torch.log_softmax(scores, -1, dtype=torch.float32)
        of_labels = logarithms.gather(1, labels[:, None])
        hits = logarithms.argmax(-1) == labels
        return logarithms.exp_(), of_labels, hits
    # On a CPU the steps of a softmax on rows in the cache are faster than `log_softmax` and `exp`.
    values = scores.float()
    highest = values.amax(-1, keepdim=True)
    of_labels = values.gather(1, labels[:, None])
    # `amax` is much faster than `argmax`, which is needed only where the label reaches the maximum.
    hits = (of_labels == highest).squeeze(1)
    hits[hits.clone()] = values[hits].argmax(-1) == labels[hits]
    sums = values.sub_(highest).exp_().sum(-1, keepdim=True)
    return values.div_(sums), of_labels - highest - sums.log(), hits


def read_weights(folder: Path, prefix: str = "bert") -> dict[str, Tensor]:
    """Read the safetensors weights of a transformers folder, by the names of the network with its heads.

    Parameters of `OBJECTIVE_PARTS_FILE` keep their names.

    Args:
        folder: of the network, or of a bare encoder.
        prefix: name of the encoder in the network.

    Raises:
        CheckpointError: there are none, or they are damaged.
    """
    check_folder(folder)
    parts: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(folder, "no safetensors weights in it", "give a transformers folder")
    for file in files:
        found = read_tensors(file)
        (parts if file.name == OBJECTIVE_PARTS_FILE else weights).update(found)
    if not any(name.startswith(f"{prefix}.") for name in weights):
        weights = {f"{prefix}.{name}": tensor for name, tensor in weights.items()}  # a bare encoder
    return weights | parts
