"""A network that writes headlines: an encoder-decoder, or a decoder that continues a body with its title.

| folder | class | input | continues with |
| --- | --- | --- | --- |
| of `bart`, `t5` | `AutoModelForSeq2SeqLM` | `[CLS] body [SEP]` to the encoder | `title [SEP]` |
| of `hybrid` (its `decoder`), `gpt`, `left_to_right` | `AutoModelForCausalLM` | `[CLS] body [SEP]` | `title [SEP]` |

A body is cut at the end so that the title has room.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError
from downstream.encoders.folder import ModelFolder
from downstream.headlines.pairs import Pair
from pretraining.folders import open_config, open_model, open_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

DECODER = "decoder"
"""Folder of the decoder in that of a hybrid."""
NO_LIMIT = 100_000
LONGEST_BODY = 512
"""Tokens of a body for networks with any number of positions."""
IGNORED = -100
"""Label of positions without a loss, in transformers."""


@dataclass(frozen=True)
class HeadlineNetwork:
    """A model of transformers with its tokenizer."""

    model: Any
    tokenizer: Any
    is_encoder_decoder: bool
    max_length: int
    """Positions of the model."""
    max_title: int
    """Longest title in tokens, `[SEP]` included."""

    @classmethod
    def load(cls, folder: Path, max_title: int) -> "HeadlineNetwork":
        """Load a folder.

        Raises:
            CheckpointError: it cannot generate text, or has too few positions.
        """
        if ModelFolder(folder / DECODER).has_config:
            folder = folder / DECODER
        config = ModelFolder(folder).config
        kind = str((config.get("architectures") or [""])[0])
        is_encoder_decoder = bool(config.get("is_encoder_decoder"))
        if not is_encoder_decoder and not kind.endswith(("CausalLM", "LMHeadModel")):
            what = f"a {kind or 'model without architectures'}, which writes no text"
            raise CheckpointError(folder, what, "give a folder of the objective bart, t5, hybrid or gpt")
        auto = "AutoModelForSeq2SeqLM" if is_encoder_decoder else "AutoModelForCausalLM"
        try:
            model = open_model(auto, folder, open_config(folder))
            tokenizer = open_tokenizer(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(folder, f"cannot be loaded ({error})", "give a transformers folder") from error
        limit = int(min(tokenizer.model_max_length, NO_LIMIT))
        limit = LONGEST_BODY if limit == NO_LIMIT else limit
        if not is_encoder_decoder and limit <= 2 * max_title:
            what = f"{limit} positions for a body and a title of {max_title} tokens"
            raise CheckpointError(folder, what, "give a model that was trained on longer rows, or set max_title lower")
        return cls(model, tokenizer, is_encoder_decoder, limit, max_title)

    def body_ids(self, body: str) -> list[int]:
        """Return the tokens of a body, as far as there is room, between `[CLS]` and `[SEP]`."""
        room = self.max_length - (0 if self.is_encoder_decoder else self.max_title)
        ids: list[int] = self.tokenizer(body, truncation=True, max_length=room)["input_ids"]
        return ids

    def title_ids(self, title: str) -> list[int]:
        """Return the tokens of a title and `[SEP]`."""
        kept = {"truncation": True, "max_length": self.max_title - 1}
        ids: list[int] = self.tokenizer(title, add_special_tokens=False, **kept)["input_ids"]
        return [*ids, self.tokenizer.sep_token_id]

    def training_batch(self, pairs: Sequence[Pair]) -> "dict[str, Tensor]":
        """Return the inputs of a training step; the loss is that of the titles alone."""
        bodies, titles = [self.body_ids(pair.body) for pair in pairs], [self.title_ids(pair.title) for pair in pairs]
        pad = self.tokenizer.pad_token_id
        if self.is_encoder_decoder:
            start = self.model.config.decoder_start_token_id
            begun = [[start, *title[:-1]] for title in titles]
            return {
                "input_ids": stacked(bodies, pad),
                "attention_mask": stacked([[1] * len(body) for body in bodies], 0),
                "decoder_input_ids": stacked(begun, pad),
                "labels": stacked(titles, IGNORED),
            }
        both = [body + title for body, title in zip(bodies, titles, strict=True)]
        labels = [[IGNORED] * len(body) + title for body, title in zip(bodies, titles, strict=True)]
        return {
            "input_ids": stacked(both, pad),
            "attention_mask": stacked([[1] * len(ids) for ids in both], 0),
            "labels": stacked(labels, IGNORED),
        }

    def title_scores(self, pairs: Sequence[Pair]) -> "tuple[Tensor, Tensor]":
        """Return the scores of the vocabulary for the tokens of the titles, (B, U, V), and these tokens, (B, U).

        Labels that are `IGNORED` are not those of a title.
        """
        batch = {name: tensor.to(self.model.device) for name, tensor in self.training_batch(pairs).items()}
        labels = batch.pop("labels")
        if self.is_encoder_decoder:
            return self.model(**batch).logits, labels
        # The score of a token is read at the one before it. Before the first title of the batch none are computed.
        begin = int((labels != IGNORED).any(0).nonzero()[0])
        length = labels.shape[1] - begin
        scores = self.model(**batch, logits_to_keep=length + 1).logits
        return scores[:, :-1], labels[:, begin:]

    def generate(self, body: str, *, num_beams: int) -> list[tuple[str, float]]:
        """Return titles by beam search, the most probable first, each with the mean log-probability of its tokens."""
        import torch

        ids = self.body_ids(body)
        inputs = torch.tensor([ids], device=self.model.device)
        self.model.eval()
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                num_beams=num_beams,
                num_return_sequences=num_beams,
                max_new_tokens=self.max_title,
                eos_token_id=self.tokenizer.sep_token_id,
                pad_token_id=self.tokenizer.pad_token_id,
                no_repeat_ngram_size=3,
                do_sample=False,
                return_dict_in_generate=True,
                output_scores=True,
            )
        skipped = 1 if self.is_encoder_decoder else len(ids)
        titles = [self.tokenizer.decode(row[skipped:], skip_special_tokens=True) for row in found.sequences.tolist()]
        return list(zip(titles, found.sequences_scores.tolist(), strict=True))


def stacked(rows: Sequence[Sequence[int]], fill: int) -> "Tensor":
    """Pad rows to the longest, int64 (B, T)."""
    import torch

    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
