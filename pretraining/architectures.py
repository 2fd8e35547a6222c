"""Networks of transformers that can be pretrained: their settings, and the parts that pretraining needs of them.

| `model.architecture` | classes | beside BERT |
| --- | --- | --- |
| `bert` | `BertForMaskedLM`, `BertForPreTraining` | |
| `electra` | `ElectraForMaskedLM` | `embedding_size`: factorised embeddings, layers of their own |
| `albert` | `AlbertForMaskedLM` | `embedding_size`; `num_hidden_groups`: sets of weights that the layers share |
| `modernbert` | `ModernBertForMaskedLM` | rotary positions, GeGLU, local attention in two of three layers |
| `gpt2` | `GPT2LMHeadModel` | a decoder: LayerNorm before each part, no segments, no bias of the scores |
| `bart` | `BartForConditionalGeneration` | an encoder and a decoder of as many layers, no segments |
| `t5` | `T5ForConditionalGeneration` | the same with relative positions, RMSNorm before each part, no biases |
| `xlnet` | `XLNetLMHeadModel` | relative positions, and a second stream that predicts tokens in any order |

Sources: Devlin et al. 2019; Clark et al. 2020; Lan et al. 2020; Warner et al. 2024; Radford et al. 2019;
Lewis et al. 2020; Raffel et al. 2020; Yang et al. 2019.
"""

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from pretraining.recipe import ModelConfig

AddMask: TypeAlias = "Callable[[Tensor], Tensor]"
"""Visible pairs of tokens, bool (B, 1, T, T) → mask in the form that the attention implementation takes."""


class Architecture(abc.ABC):
    """The parts of a network with a masked-LM head.

    Shapes: B rows, T tokens, D hidden, E embedding, M masked positions, V vocabulary.
    """

    name: ClassVar[str]
    """`model_type` in transformers."""
    prefix: ClassVar[str]
    """Attribute of the network that is the encoder."""
    layers: ClassVar[str]
    """Attribute of the encoder that is the stack of layers."""
    masked_lm: ClassVar[str]
    """Class of the network in transformers."""
    vocab_parameters: ClassVar[tuple[str, ...]]
    """Parameters with a row for every vocabulary entry."""
    positions: ClassVar[str | None]
    """Parameter with a row for every position, if there is one."""
    is_causal: ClassVar[bool] = False
    """Whether a token sees no later one."""
    fills_masks: ClassVar[bool] = True
    """Whether transformers has a masked LM of it."""
    has_encoder: ClassVar[bool] = True
    """Whether `encode` gives the hidden states of a text."""
    can_unpad: ClassVar[bool] = False
    """Whether `pretraining.unpadded` computes it."""
    can_recompute: ClassVar[bool] = True
    """Whether its layers can compute their activations again in the backward pass."""

    def has_positions(self, name: str) -> bool:
        """Whether a parameter has a row for every position."""
        return name == self.positions

    def is_needed(self, name: str) -> bool:
        """Whether a network of another run must have a parameter if a run is to start from it: heads are not needed."""
        return name.startswith(f"{self.prefix}.") and "pooler" not in name

    @abc.abstractmethod
    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return transformers' configuration of a recipe's shape."""

    def build(self, config: Any, *, next_sentence: bool) -> Any:
        """Return a network with random weights.

        Raises:
            ValueError: the architecture has no head for pairs.
        """
        import transformers

        if next_sentence:
            raise ValueError(f"{self.name} has no next-sentence head")
        return getattr(transformers, self.masked_lm)(config)

    def encoder(self, network: Any) -> "nn.Module":
        """Return the encoder of a network."""
        encoder: nn.Module = getattr(network, self.prefix)
        return encoder

    def stack(self, network: Any) -> "nn.Module":
        """Return the layers of a network."""
        stack: nn.Module = getattr(self.encoder(network), self.layers)
        return stack

    def encode(self, network: Any, given: "Mapping[str, Tensor]", add: AddMask) -> "Tensor":
        """Return the last hidden states, (B, T, D).

        Args:
            network: of this architecture.
            given: `input_ids`, `token_type_ids` and `position_ids`, int64 (B, T), and `attention_mask`, bool
                (B, 1, T, T): visible pairs.
            add: makes a mask for the attention implementation.
        """
        hidden: Tensor = self.encoder(network)(**self.arguments(network, dict(given), add)).last_hidden_state
        return hidden

    def arguments(self, network: Any, given: "dict[str, Tensor]", add: AddMask) -> dict[str, Any]:  # noqa: ARG002
        """Return the arguments of the encoder in transformers; parameters as in `encode`."""
        return given | {"attention_mask": add(given["attention_mask"])}

    @abc.abstractmethod
    def head(self, network: Any) -> "tuple[nn.Module | Callable[[Tensor], Tensor], Tensor]":
        """Return the masked-LM head: what comes before the product with the word embeddings, and a bias.

        The first is a function (M, D) → (M, E); the bias is that of the scores, (V,).
        """


def _bert_settings(shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> dict[str, Any]:
    names = {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "type_vocab_size"}
    names |= {"hidden_dropout_prob", "attention_probs_dropout_prob"}
    settings = shape.model_dump(include=names)
    settings["intermediate_size"] = shape.intermediate_size or 4 * shape.hidden_size
    return settings | {"vocab_size": vocab_size, "pad_token_id": pad_token_id}


class Bert(Architecture):
    """See the module."""

    name = "bert"
    prefix, layers, masked_lm = "bert", "encoder", "BertForMaskedLM"
    vocab_parameters = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    positions = "bert.embeddings.position_embeddings.weight"

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return a `BertConfig`."""
        from transformers import BertConfig

        return BertConfig(**_bert_settings(shape, vocab_size, pad_token_id))

    def build(self, config: Any, *, next_sentence: bool) -> Any:
        """Return a `BertForPreTraining` or a `BertForMaskedLM`."""
        from transformers import BertForPreTraining

        return BertForPreTraining(config) if next_sentence else super().build(config, next_sentence=False)

    def head(self, network: Any) -> "tuple[nn.Module, Tensor]":
        """Return transform and bias."""
        predictions = network.cls.predictions
        return predictions.transform, predictions.decoder.bias


class Electra(Architecture):
    """See the module."""

    name = "electra"
    prefix, layers, masked_lm = "electra", "encoder", "ElectraForMaskedLM"
    vocab_parameters = ("electra.embeddings.word_embeddings.weight", "generator_lm_head.bias")
    positions = "electra.embeddings.position_embeddings.weight"

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return an `ElectraConfig`."""
        from transformers import ElectraConfig

        size = shape.embedding_size or shape.hidden_size
        return ElectraConfig(embedding_size=size, **_bert_settings(shape, vocab_size, pad_token_id))

    def head(self, network: Any) -> "tuple[nn.Module, Tensor]":
        """Return the projection to the embeddings' size, and the bias."""
        return network.generator_predictions, network.generator_lm_head.bias


class Albert(Architecture):
    """See the module."""

    name = "albert"
    prefix, layers, masked_lm = "albert", "encoder", "AlbertForMaskedLM"
    can_recompute = False
    vocab_parameters = ("albert.embeddings.word_embeddings.weight", "predictions.bias")
    positions = "albert.embeddings.position_embeddings.weight"

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return an `AlbertConfig`."""
        from transformers import AlbertConfig

        return AlbertConfig(
            embedding_size=shape.embedding_size or shape.hidden_size,
            num_hidden_groups=shape.num_hidden_groups,
            hidden_act="gelu",
            **_bert_settings(shape, vocab_size, pad_token_id),
        )

    def build(self, config: Any, *, next_sentence: bool) -> Any:
        """Return an `AlbertForPreTraining`, whose head tells the order of two segments, or an `AlbertForMaskedLM`."""
        from transformers import AlbertForPreTraining

        return AlbertForPreTraining(config) if next_sentence else super().build(config, next_sentence=False)

    def head(self, network: Any) -> "tuple[Callable[[Tensor], Tensor], Tensor]":
        """Return the projection to the embeddings' size, and the bias."""
        predictions = network.predictions
        return lambda states: predictions.LayerNorm(predictions.activation(predictions.dense(states))), predictions.bias


class ModernBert(Architecture):
    """See the module."""

    name = "modernbert"
    prefix, layers, masked_lm = "model", "layers", "ModernBertForMaskedLM"
    vocab_parameters = ("model.embeddings.tok_embeddings.weight", "decoder.bias")
    positions = None
    can_unpad = True

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return a `ModernBertConfig`; its GeGLU has three matrices, so its width is two thirds of BERT's."""
        from transformers import ModernBertConfig

        settings = _bert_settings(shape, vocab_size, pad_token_id)
        dropout: dict[str, Any] = {"embedding_dropout": settings.pop("hidden_dropout_prob")}
        dropout |= {"mlp_dropout": dropout["embedding_dropout"]}
        dropout |= {"attention_dropout": settings.pop("attention_probs_dropout_prob")}
        del settings["type_vocab_size"]
        settings["intermediate_size"] = shape.intermediate_size or -(-8 * shape.hidden_size // 3 // 64) * 64
        others: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
        return ModernBertConfig(local_attention=shape.local_attention, **settings, **dropout, **others)

    def arguments(self, network: Any, given: "dict[str, Tensor]", add: AddMask) -> dict[str, Any]:
        """Return the arguments; there are no segment embeddings, and most layers see near tokens alone."""
        import torch

        positions = torch.arange(given["input_ids"].shape[1], device=given["input_ids"].device)
        near = (positions[:, None] - positions[None, :]).abs() <= network.config.sliding_window
        visible = given["attention_mask"]
        masks = {"full_attention": add(visible), "sliding_attention": add(visible & near)}
        return {"input_ids": given["input_ids"], "position_ids": given["position_ids"], "attention_mask": masks}

    def head(self, network: Any) -> "tuple[nn.Module, Tensor]":
        """Return the prediction head and the bias."""
        return network.head, network.decoder.bias


class Gpt2(Architecture):
    """See the module."""

    name = "gpt2"
    prefix, layers, masked_lm = "transformer", "h", "GPT2LMHeadModel"
    vocab_parameters = ("transformer.wte.weight",)
    positions = "transformer.wpe.weight"
    is_causal = True

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return a `GPT2Config`; whoever knows the vocabulary sets the tokens at which a text begins and ends."""
        from transformers import GPT2Config

        hidden, attention = shape.hidden_dropout_prob, shape.attention_probs_dropout_prob
        settings: dict[str, Any] = {"resid_pdrop": hidden, "embd_pdrop": hidden, "attn_pdrop": attention}
        settings |= dict.fromkeys(("bos_token_id", "eos_token_id"))
        return GPT2Config(
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            n_embd=shape.hidden_size,
            n_layer=shape.num_hidden_layers,
            n_head=shape.num_attention_heads,
            n_positions=shape.max_position_embeddings,
            n_inner=shape.intermediate_size or 4 * shape.hidden_size,
            **settings,
        )

    def arguments(self, network: Any, given: "dict[str, Tensor]", add: AddMask) -> dict[str, Any]:
        """Return the arguments without segments, whose numbers GPT-2 would embed as words."""
        del given["token_type_ids"]
        return super().arguments(network, given, add) | {"use_cache": False}

    def head(self, network: Any) -> "tuple[Callable[[Tensor], Tensor], Tensor]":
        """Return nothing but the states themselves, and zeros."""
        weight = network.transformer.wte.weight
        return lambda states: states, weight.new_zeros(len(weight))


class EncoderDecoder(Architecture):
    """An encoder and a decoder that reads its hidden states; the decoder predicts the next token.

    Shapes: as above, T tokens of the encoder, U of the decoder.
    """

    is_causal = True
    has_encoder = False

    @abc.abstractmethod
    def decode(
        self, network: Any, input_ids: "Tensor", decoder_input_ids: "Tensor", masks: "Mapping[str, Tensor]"
    ) -> "Tensor":
        """Return the last hidden states of the decoder, (B, U, D).

        Args:
            network: of this architecture.
            input_ids: int64 (B, T).
            decoder_input_ids: int64 (B, U); padding comes last, where no text sees it.
            masks: `attention_mask`, (B, 1, 1, T), and `decoder_attention_mask`, (1, 1, U, U), in the form that the
                attention implementation takes.
        """

    @abc.abstractmethod
    def stacks(self, network: Any) -> "tuple[nn.Module, nn.Module]":
        """Return the layers of encoder and decoder."""

    def stack(self, network: Any) -> "nn.Module":
        """Return the layers of the encoder."""
        return self.stacks(network)[0]


class Bart(EncoderDecoder):
    """See the module; `prefix` is encoder and decoder together."""

    name = "bart"
    prefix, layers, masked_lm = "model", "layers", "BartForConditionalGeneration"
    vocab_parameters = ("model.shared.weight",)
    positions = "model.encoder.embed_positions.weight"

    def has_positions(self, name: str) -> bool:
        """Whether a parameter has a row for every position, in the encoder or in the decoder."""
        return name in {self.positions, "model.decoder.embed_positions.weight"}

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return a `BartConfig`; whoever knows the vocabulary sets the tokens at which a text begins and ends."""
        from transformers import BartConfig

        width = shape.intermediate_size or 4 * shape.hidden_size
        sides: dict[str, Any] = {}
        for side in ("encoder", "decoder"):
            sides |= {f"{side}_layers": shape.num_hidden_layers, f"{side}_attention_heads": shape.num_attention_heads}
            sides[f"{side}_ffn_dim"] = width
        ends: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "forced_eos_token_id"))
        return BartConfig(
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            d_model=shape.hidden_size,
            max_position_embeddings=shape.max_position_embeddings,
            dropout=shape.hidden_dropout_prob,
            attention_dropout=shape.attention_probs_dropout_prob,
            decoder_start_token_id=None,
            **sides,
            **ends,
        )

    def decode(
        self, network: Any, input_ids: "Tensor", decoder_input_ids: "Tensor", masks: "Mapping[str, Tensor]"
    ) -> "Tensor":
        """Return the last hidden states of the decoder."""
        hidden: Tensor = network.model(
            input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False, **masks
        ).last_hidden_state
        return hidden

    def stacks(self, network: Any) -> "tuple[nn.Module, nn.Module]":
        """Return the layers of encoder and decoder."""
        return network.model.encoder.layers, network.model.decoder.layers

    def head(self, network: Any) -> "tuple[Callable[[Tensor], Tensor], Tensor]":
        """Return nothing but the states themselves, and zeros."""
        weight = network.model.shared.weight
        return lambda states: states, weight.new_zeros(len(weight))


class T5(EncoderDecoder):
    """See the module."""

    name = "t5"
    prefix, layers, masked_lm = "encoder", "block", "T5ForConditionalGeneration"
    vocab_parameters = ("shared.weight",)
    positions = None

    def is_needed(self, name: str) -> bool:  # noqa: ARG002
        """Every parameter: the decoder has no prefix in common with the encoder, and there are no heads."""
        return True

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return a `T5Config`; it knows one dropout, and any number of positions."""
        from transformers import T5Config

        return T5Config(
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            d_model=shape.hidden_size,
            d_kv=shape.hidden_size // shape.num_attention_heads,
            d_ff=shape.intermediate_size or 4 * shape.hidden_size,
            num_layers=shape.num_hidden_layers,
            num_heads=shape.num_attention_heads,
            dropout_rate=shape.hidden_dropout_prob,
            eos_token_id=None,
        )

    def decode(
        self, network: Any, input_ids: "Tensor", decoder_input_ids: "Tensor", masks: "Mapping[str, Tensor]"
    ) -> "Tensor":
        """Return the last hidden states of the decoder."""
        states = network.encoder(input_ids=input_ids, attention_mask=masks["attention_mask"]).last_hidden_state
        hidden: Tensor = network.decoder(
            input_ids=decoder_input_ids,
            attention_mask=masks["decoder_attention_mask"],
            encoder_hidden_states=states,
            encoder_attention_mask=masks["attention_mask"],
            use_cache=False,
        ).last_hidden_state
        return hidden

    def stacks(self, network: Any) -> "tuple[nn.Module, nn.Module]":
        """Return the layers of encoder and decoder."""
        return network.encoder.block, network.decoder.block

    def head(self, network: Any) -> "tuple[Callable[[Tensor], Tensor], Tensor]":
        """Return the scaling of the states, and zeros; the embeddings are shared with the scores."""
        weight, scale = network.shared.weight, network.config.d_model**-0.5
        return lambda states: states * scale, weight.new_zeros(len(weight))


class Xlnet(Architecture):
    """See the module."""

    name = "xlnet"
    prefix, layers, masked_lm = "transformer", "layer", "XLNetLMHeadModel"
    can_recompute = False
    has_encoder = False
    vocab_parameters = ("transformer.word_embedding.weight", "lm_loss.bias")
    positions = None
    fills_masks = False

    def config(self, shape: "ModelConfig", vocab_size: int, pad_token_id: int) -> "PreTrainedConfig":
        """Return an `XLNetConfig`; it knows one dropout and any number of positions, and keeps no memory."""
        from transformers import XLNetConfig

        others: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "mem_len"))
        return XLNetConfig(
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            d_model=shape.hidden_size,
            n_layer=shape.num_hidden_layers,
            n_head=shape.num_attention_heads,
            d_inner=shape.intermediate_size or 4 * shape.hidden_size,
            dropout=shape.hidden_dropout_prob,
            use_mems_eval=False,
            summary_type="first",  # [CLS] is the first token here
            **others,
        )

    def head(self, network: Any) -> "tuple[Callable[[Tensor], Tensor], Tensor]":
        """Return nothing but the states themselves, and the bias."""
        return lambda states: states, network.lm_loss.bias


KINDS: tuple[type[Architecture], ...] = (Bert, Electra, Albert, ModernBert, Gpt2, Bart, T5, Xlnet)
ARCHITECTURES: Mapping[str, Architecture] = {kind.name: kind() for kind in KINDS}
ENCODERS = tuple(name for name, kind in ARCHITECTURES.items() if kind.fills_masks and not kind.is_causal)
"""Architectures that predict masked tokens from both sides."""
