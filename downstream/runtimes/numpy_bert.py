"""BERT without torch: a tokenizer and a forward pass that are ready in a fraction of a second.

    bert = NumpyBert.load(folder)
    ids = bert.tokenizer(["배우들 연기가 좋았다"])["input_ids"]
    states = bert.states(np.array(ids))                         # (B, T, D)

Importing torch and the models of transformers takes seconds, which is most of the time of whoever asks one question.
NumPy gives the same numbers to within single precision, and is slower only where there is much to compute.

Source of the arithmetic: Devlin et al. 2019, section 3, and Vaswani et al. 2017, section 3; layer normalisation comes
after each residual sum, GELU is the exact one (Hendrycks and Gimpel 2016).
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from downstream.encoders.folder import ModelFolder

if TYPE_CHECKING:
    import tokenizers

FloatArray: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]

WEIGHTS_FILE, TOKENIZER_FILE = "model.safetensors", "tokenizer.json"
INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
PLAIN_NORMALIZER = {"type": "BertNormalizer", "strip_accents": False, "lowercase": False}
"""What every tokenizer of ours does before it splits, besides `clean_text` and spaces around Chinese characters."""
GELU_BLOCK = 1 << 16
"""Numbers that are computed at a time."""
ERF_SCALE = 0.3275911
ERF_COEFFICIENTS = tuple(
    np.float32(number) for number in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
)
REPAIR = "download the folder again"


def is_plain_bert(folder: Path) -> bool:
    """Whether a folder is a BERT that this module reads: one file of weights, a cased WordPiece, nothing unusual."""
    from safetensors import SafetensorError, safe_open

    model = ModelFolder(folder)
    if not (model.has_config and all((folder / name).is_file() for name in (TOKENIZER_FILE, WEIGHTS_FILE))):
        return False
    try:
        config, tokenizer = model.config, json.loads((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
        with safe_open(folder / WEIGHTS_FILE, "numpy") as file:
            found = {name.removeprefix("bert."): file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    except (CheckpointError, OSError, UnicodeDecodeError, json.JSONDecodeError, SafetensorError):
        return False  # transformers says what is wrong with it
    if not isinstance(tokenizer, dict):
        return False
    normalizer = tokenizer.get("normalizer") or {}
    return (
        config.get("model_type") == "bert"
        and found.keys() >= _encoder_names(int(config.get("num_hidden_layers", 0)))
        and {*found.values()} <= {"F16", "F32"}
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
        and (tokenizer.get("model") or {}).get("type") == "WordPiece"
        and all(normalizer.get(key) == value for key, value in PLAIN_NORMALIZER.items())
        and (tokenizer.get("post_processor") or {}).get("type") == "TemplateProcessing"
    )


def _encoder_names(num_layers: int) -> set[str]:
    """Return the names of all weights of an encoder."""
    names = {f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")}
    parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
    parts += [f"{block}.{part}" for block in ("attention.output", "output") for part in ("dense", "LayerNorm")]
    modules = ["embeddings.LayerNorm"]
    modules += [f"encoder.layer.{k}.{part}" for k in range(num_layers) for part in (*parts, "intermediate.dense")]
    return names | {f"{module}.{kind}" for module in modules for kind in ("weight", "bias")}


class PlainTokenizer:
    """A saved fast tokenizer, called as those of transformers are, as far as texts and pairs of texts need it."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer", max_length: int) -> None:
        """Use an open tokenizer; MAX_LENGTH is what its model reads, special tokens included."""
        self._tokenizer, self._lock = tokenizer, threading.Lock()
        self.model_max_length = max_length
        self.model_input_names = INPUTS
        ids = {name: tokenizer.token_to_id(f"[{name}]") for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
        self.pad_token_id, self.mask_token_id, self.mask_token = ids["PAD"], ids["MASK"], "[MASK]"
        self.all_special_ids = [id_ for id_ in ids.values() if id_ is not None]

    @classmethod
    def load(cls, folder: Path) -> "PlainTokenizer":
        """Open the tokenizer of a folder that `is_plain_bert`.

        Raises:
            CheckpointError: it is damaged, or does not belong to the weights.
        """
        from tokenizers import Tokenizer

        config = ModelFolder(folder).config
        try:
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        except Exception as error:  # the tokenizers library raises plain Exception for what it cannot parse
            raise CheckpointError(folder, f"the tokenizer files are damaged ({error})", REPAIR) from error
        tokenizer.no_padding()
        loaded = cls(tokenizer, int(config.get("max_position_embeddings", 512)))
        if loaded.pad_token_id is None or loaded.mask_token_id is None:
            raise CheckpointError(folder / TOKENIZER_FILE, "it lacks [PAD] or [MASK]", "use the model's own files")
        if (size := max(loaded.get_vocab().values()) + 1) > int(config.get("vocab_size", 0)):
            what = f"the tokenizer has {size:,} pieces and the model {int(config.get('vocab_size', 0)):,}"
            raise CheckpointError(folder, what, "put tokenizer and weights of the same model in the folder")
        return loaded

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        truncation: bool | str = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
    ) -> dict[str, Any]:
        """Tokenise a text, or texts with their pairs; returns a list, or a list of lists, for each of `INPUTS`.

        Args:
            texts: what is tokenised.
            pairs: second texts.
            truncation: cut what is longer, at the end; of a pair, tokens of the longer text first.
            max_length: tokens from which on it is cut, special ones included; default: what the model reads.
            add_special_tokens: put [CLS] and [SEP] around.
        """
        rows: list[Any] = [texts] if isinstance(texts, str) else list(texts)
        if pairs is not None:
            rows = list(zip(rows, pairs, strict=True))
        with self._lock:  # truncation is a setting of the one tokenizer
            if truncation:
                self._tokenizer.enable_truncation(max_length or self.model_max_length, strategy="longest_first")
            else:
                self._tokenizer.no_truncation()
            found = self._tokenizer.encode_batch(rows, add_special_tokens=add_special_tokens)
        columns = ([e.ids for e in found], [e.type_ids for e in found], [e.attention_mask for e in found])
        return {
            name: column[0] if isinstance(texts, str) else column for name, column in zip(INPUTS, columns, strict=True)
        }

    def get_vocab(self) -> dict[str, int]:
        """Return the pieces with their ids."""
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def convert_ids_to_tokens(self, id_: int) -> str:
        """Return the piece of an id."""
        return str(self._tokenizer.id_to_token(id_))


@dataclass(frozen=True)
class NumpyBert:
    """A BERT in single precision with the heads that its folder holds. Any number of threads may use it."""

    folder: Path
    tokenizer: PlainTokenizer
    num_heads: int
    hidden_size: int
    num_parameters: int
    """Of encoder and pooler, and of the masked-LM head where there is one."""
    products_per_token: int
    """Multiplications that the layers need for a token, those between tokens left out."""
    _epsilon: float
    _weights: Mapping[str, FloatArray] = field(repr=False)
    """Names as transformers gives them, without the prefix of the encoder."""
    _layers: Sequence[Mapping[str, FloatArray]] = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> "NumpyBert":
        """Load a folder that `is_plain_bert`.

        Raises:
            CheckpointError: the weights are damaged, or do not fit the vocabulary.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        config = ModelFolder(folder).config
        tokenizer = PlainTokenizer.load(folder)
        try:
            stored = load_file(str(folder / WEIGHTS_FILE))
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(folder, f"the model cannot be read ({error})", REPAIR) from error
        weights = {name.removeprefix("bert."): value.astype(np.float32) for name, value in stored.items()}
        words = weights["embeddings.word_embeddings.weight"]
        if words.shape != (int(config["vocab_size"]), int(config["hidden_size"])):
            what = f"word embeddings of shape {words.shape} do not fit the config"
            raise CheckpointError(folder, what, "give the weights that belong to the config")
        return cls.of_weights(folder, tokenizer, config, weights)

    @classmethod
    def of_weights(
        cls, folder: Path, tokenizer: PlainTokenizer, config: Mapping[str, Any], weights: Mapping[str, FloatArray]
    ) -> "NumpyBert":
        """Make one of weights with the names of transformers, the encoder's without their prefix."""
        layers = [_layer(weights, f"encoder.layer.{k}.") for k in range(int(config["num_hidden_layers"]))]
        return cls(
            folder=folder,
            tokenizer=tokenizer,
            num_heads=int(config["num_attention_heads"]),
            hidden_size=int(config["hidden_size"]),
            num_parameters=sum(v.size for name, v in weights.items() if not name.startswith("classifier.")),
            products_per_token=sum(v.size for layer in layers for name, v in layer.items() if name.endswith(".weight")),
            _epsilon=float(config.get("layer_norm_eps", 1e-12)),
            _weights=weights,
            _layers=layers,
        )

    def states(
        self, input_ids: Integers, attention_mask: Integers | None = None, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the vectors (B, T, D) of the last layer.

        Args:
            input_ids: (B, T), padded on the right.
            attention_mask: (B, T), 0 for padding; default: there is none.
            token_type_ids: (B, T); default: 0.
        """
        batch, length = input_ids.shape
        words, positions, types = (
            self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        x = words[input_ids] + positions[:length]
        x += types[0] if token_type_ids is None else types[token_type_ids]
        x = self._normalize(x, self._weights, "embeddings.LayerNorm").reshape(batch * length, -1)  # (B·T, D)
        bias = None
        if attention_mask is not None and not attention_mask.all():
            bias = np.where(attention_mask[:, None, None, :] != 0, np.float32(0), np.finfo(np.float32).min)
        for layer in self._layers:
            x += self._attend(x, layer, bias, batch, length) @ layer["attention.output.dense.weight"]
            x += layer["attention.output.dense.bias"]
            x = self._normalize(x, layer, "attention.output.LayerNorm")
            inner = x @ layer["intermediate.dense.weight"]
            inner += layer["intermediate.dense.bias"]
            x += gelu(inner) @ layer["output.dense.weight"]
            x += layer["output.dense.bias"]
            x = self._normalize(x, layer, "output.LayerNorm")
        states: FloatArray = x.reshape(batch, length, -1)
        return states

    def first_states(
        self, input_ids: Integers, attention_mask: Integers | None = None, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the vectors (B, D) of [CLS] in the last layer."""
        return self.states(input_ids, attention_mask, token_type_ids)[:, 0]

    def means(
        self, input_ids: Integers, attention_mask: Integers, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the means (B, D) of the vectors of all tokens that are no padding."""
        seen = attention_mask[:, :, None].astype(np.float32)  # (B, T, 1)
        total: FloatArray = (self.states(input_ids, attention_mask, token_type_ids) * seen).sum(axis=1)
        means: FloatArray = total / seen.sum(axis=1)
        return means

    def label_logits(
        self, input_ids: Integers, attention_mask: Integers, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the logits (B, C) of the head for one text or a pair, which reads [CLS].

        Raises:
            CheckpointError: the folder holds no such head.
        """
        first = self.first_states(input_ids, attention_mask, token_type_ids)  # (B, D)
        pooled = np.tanh(self._project(first, "pooler.dense"))
        return self._project(pooled, "classifier")

    def token_logits(self, states: FloatArray) -> FloatArray:
        """Return what the masked-LM head says of vectors (N, D): logits (N, V).

        Raises:
            CheckpointError: the folder holds no such head.
        """
        x = gelu(self._project(states, "cls.predictions.transform.dense"))
        x = self._normalize(x, self._weights, "cls.predictions.transform.LayerNorm")
        # The output embeddings are the input's, unless they are stored apart.
        words = self._weights["embeddings.word_embeddings.weight"]
        logits: FloatArray = x @ self._weights.get("cls.predictions.decoder.weight", words).T
        logits += self._weights["cls.predictions.bias"]
        return logits

    @property
    def has_masked_lm_head(self) -> bool:
        """Whether `token_logits` can be asked."""
        return "cls.predictions.transform.dense.weight" in self._weights and "cls.predictions.bias" in self._weights

    def _project(self, x: FloatArray, name: str) -> FloatArray:
        if f"{name}.weight" not in self._weights:
            raise CheckpointError(self.folder, f"weights are missing: {name}", "give a folder that was saved with it")
        projected: FloatArray = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return projected

    def _attend(
        self, x: FloatArray, layer: Mapping[str, FloatArray], bias: FloatArray | None, batch: int, length: int
    ) -> FloatArray:
        """Return the context vectors (B·T, D)."""
        joint = x @ layer["qkv.weight"]
        joint += layer["qkv.bias"]
        heads = joint.reshape(batch, length, 3, self.num_heads, -1).transpose(2, 0, 3, 1, 4)  # (3, B, heads, T, width)
        query, key, value = heads
        scores = query @ key.swapaxes(2, 3)  # (B, heads, T, T)
        scores *= np.float32(query.shape[-1] ** -0.5)
        if bias is not None:
            scores += bias
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        context: FloatArray = (scores @ value).transpose(0, 2, 1, 3).reshape(batch * length, -1)
        return context

    def _normalize(self, x: FloatArray, weights: Mapping[str, FloatArray], name: str) -> FloatArray:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        x *= weights[f"{name}.weight"]
        x += weights[f"{name}.bias"]
        return x


def _layer(weights: Mapping[str, FloatArray], prefix: str) -> dict[str, FloatArray]:
    """Return the weights of one layer for products from the right, with query, key and value side by side."""
    parts = [f"{prefix}attention.self.{part}" for part in ("query", "key", "value")]
    layer = {
        "qkv.weight": np.ascontiguousarray(np.concatenate([weights[f"{part}.weight"] for part in parts]).T),
        "qkv.bias": np.concatenate([weights[f"{part}.bias"] for part in parts]),
    }
    for name in ("attention.output.dense", "intermediate.dense", "output.dense"):
        layer[f"{name}.weight"] = np.ascontiguousarray(weights[f"{prefix}{name}.weight"].T)
        layer[f"{name}.bias"] = weights[f"{prefix}{name}.bias"]
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        layer |= {f"{name}.{part}": weights[f"{prefix}{name}.{part}"] for part in ("weight", "bias")}
    return layer


def gelu(x: FloatArray) -> FloatArray:
    """Return x · Φ(x) in X's own memory, to within 5e-7.

    Φ is the rational approximation 7.1.26 of Abramowitz and Stegun 1964, whose error is below 7.5e-8. SciPy's `erf`
    takes four times as long, which would be a third of the time of a small encoder. A block of rows at a time stays in
    the processor's cache.
    """
    rows = x.reshape(-1, x.shape[-1])
    size = max(1, GELU_BLOCK // x.shape[-1])
    for first in range(0, len(rows), size):
        block = rows[first : first + size]
        magnitude = np.abs(block)
        density = magnitude * magnitude
        density *= np.float32(-0.5)
        np.exp(density, out=density)
        t = magnitude * np.float32(ERF_SCALE * 0.5**0.5)
        t += 1
        np.reciprocal(t, out=t)
        tail = t * ERF_COEFFICIENTS[0]
        for coefficient in ERF_COEFFICIENTS[1:]:
            tail += coefficient
            tail *= t
        tail *= density  # 2 Φ(−|x|)
        tail *= np.float32(0.5)
        tail *= magnitude
        np.maximum(block, 0, out=block)
        block -= tail
    return x
