"""Held-out perplexity of a saved masked language model: the same rows and masks for every model of a vocabulary.

    python -m pretraining.evaluate MODEL --corpus DIR [--by-source]

The training loop evaluates on the rows of its own objective; this command makes models of different objectives
comparable: single segments, 15 % of the tokens masked, the same masks for every model.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from corpora.corpus import read_manifest
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import CheckpointError, DataError, UsageError
from corpora.foundation.machine import keep_freed_memory
from pretraining.architectures import ENCODERS
from pretraining.data.tokens import TokenizedCorpus, tokenize_corpus
from pretraining.folders import check_sizes, count_stored, open_config
from pretraining.objective import RowLayout, get_objective
from pretraining.training.batches import BatchSource
from pretraining.training.dataset import make_rows, special_ids

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Sums: TypeAlias = dict[bool, dict[str, float]]
"""Loss, correct predictions and their number, of early positions (False) and of late ones (True)."""
BATCH = 32
DEFAULT_LENGTH = 128
"""Tokens of a row, as far as the model reads them."""


def evaluate_mlm(
    folder: Path,
    corpus: Path,
    *,
    max_length: int | None = None,
    max_rows: int = 4096,
    mask_rate: float = 0.15,
    seed: int = 0,
    by_source: bool = False,
) -> dict[str, Any]:
    """Predict masked held-out tokens.

    Args:
        folder: a BERT with its masked-LM head and its `tokenizer.json`, as transformers saves it.
        corpus: folder made by `corpora.build`.
        max_length: tokens of a row; default: 128, or fewer if the model reads fewer.
        max_rows: maximum number of rows; with `by_source`, of each source.
        mask_rate: share of tokens to predict.
        seed: of rows and masks.
        by_source: whether to score the held-out text of every source by itself as well.

    Returns:
        `mlm_loss` in nats, `mlm_perplexity`, `mlm_accuracy`, `num_predictions`, `mlm_bits_per_character`, which can be
        compared between vocabularies, and `unigram_loss` in nats, the loss of a predictor that knows only the
        frequencies of the masked tokens. With longer rows than 128 tokens also `mlm_perplexity_to_128` and
        `mlm_perplexity_from_128`, of tokens at these positions of their documents. With `by_source` also
        `mlm_bits_per_character_by_source`, by the names of the sources that have held-out text.

    Raises:
        CheckpointError: the folder holds no such model.
        DataError: the corpus has no held-out split, or is a single file, which has no sources.
        UsageError: the model reads fewer tokens than `max_length`.
    """
    import torch

    keep_freed_memory()
    model = _load(folder)
    max_length = _row_length(max_length, int(model.network.config.max_position_embeddings))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.use_attention(device)
    model.to(device).eval()
    tokenizer_json = folder / "tokenizer.json"
    layout = RowLayout(max_length=max_length, isolate_documents=True, seed=seed, specials=special_ids(tokenizer_json))
    kind = get_objective("dynamic_mlm", "evaluate")
    objective = kind(kind.settings(mask_rate=mask_rate), layout)
    characters = layout.specials.num_characters
    assert characters is not None  # `special_ids` counts them

    def score(tokens: TokenizedCorpus, digest: str, scratch: Path) -> dict[str, Any]:
        """Return the scores of documents; SCRATCH is for their rows."""
        sums: Sums = {is_late: {"mlm_loss": 0.0, "mlm_correct": 0.0, "predictions": 0.0} for is_late in (False, True)}
        counts = np.zeros(layout.specials.vocab_size, np.int64)
        rows, _ = make_rows(objective, tokens, digest, scratch, split="held-out", num_workers=1)
        source = BatchSource(rows, objective, BATCH)
        for first in range(0, min(len(rows), max_rows), BATCH):
            some = np.arange(first, min(first + BATCH, len(rows), max_rows))
            batch = source.tensors(some, np.zeros(len(some), np.int64))
            # Some networks predict a mask at a position before it.
            batch["masked_positions"] -= int(getattr(model.network.config, "mask_shift", 0))
            counts += np.bincount(batch["masked_ids"].numpy(), minlength=len(counts))
            _predict(model, batch, sums, device)
        return _averages(sums, counts, float(counts @ characters))

    with tempfile.TemporaryDirectory(prefix="pressbert-") as folder_name, torch.no_grad():
        scratch = Path(folder_name)
        tokens, digest = tokenize_corpus(corpus, tokenizer_json, scratch, split="held-out")
        if not len(tokens):
            raise DataError(
                corpus, "has no held-out documents", "build it with python -m corpora.build --held-out 0.01"
            )
        found = score(tokens, digest, scratch)
        if by_source:
            found["mlm_bits_per_character_by_source"] = bits = {}
            for name in dict.fromkeys(shard.source for shard in read_manifest(corpus).shards):
                own, digest = tokenize_corpus(corpus, tokenizer_json, scratch, split="held-out", source=name)
                if len(own):
                    bits[name] = score(own, digest, scratch)["mlm_bits_per_character"]
    return found


def _predict(model: Any, batch: "dict[str, Tensor]", sums: Sums, device: "torch.device") -> None:
    """Add the losses of a batch to SUMS, those of early and of late positions apart."""
    late = batch["position_ids"].flatten()[batch["masked_positions"]] >= DEFAULT_LENGTH
    for is_late, part in sums.items():
        chosen = late == is_late
        if not chosen.any():
            continue
        masked = {name: batch[name][chosen] for name in ("masked_positions", "masked_ids")}
        outputs = model(**{name: tensor.to(device) for name, tensor in (batch | masked).items()})
        for name in ("mlm_loss", "mlm_correct"):
            part[name] += float(outputs[name])
        part["predictions"] += int(chosen.sum())


def _averages(sums: Sums, counts: npt.NDArray[np.int64], characters: float) -> dict[str, Any]:
    total = int(counts.sum())
    shares = counts[counts > 0] / total
    loss = sum(part["mlm_loss"] for part in sums.values()) / total
    found = {
        "mlm_loss": loss,
        "mlm_perplexity": math.exp(loss),
        "mlm_accuracy": sum(part["mlm_correct"] for part in sums.values()) / total,
        "mlm_bits_per_character": loss * total / math.log(2) / characters,
        "num_predictions": total,
        "unigram_loss": float(-(shares * np.log(shares)).sum()),
    }
    if sums[True]["predictions"]:
        for name, part in zip(("to", "from"), sums.values(), strict=True):
            perplexity = math.exp(part["mlm_loss"] / part["predictions"])
            found[f"mlm_perplexity_{name}_{DEFAULT_LENGTH}"] = perplexity
    return found


def _row_length(asked: int | None, positions: int) -> int:
    if asked is not None and asked > positions:
        raise UsageError("--max-length", f"{asked}, and the model reads {positions} tokens", "give a smaller number")
    return min(DEFAULT_LENGTH, positions) if asked is None else asked


def _load(folder: Path) -> Any:
    from pretraining.model import MaskedLanguageModel, read_weights

    if not (folder / "config.json").is_file():
        raise CheckpointError(folder, "no config.json in it", "give a folder made by python -m pretraining.run")
    config: Any = open_config(folder)
    check_sizes(folder, config, count_stored(folder.glob("*.safetensors")))
    if config.model_type not in ENCODERS:
        what = f"a {config.model_type} model, which predicts no masked tokens as pretrained here"
        raise CheckpointError(folder, what, f"give one of: {', '.join(ENCODERS)}")
    if getattr(config, "is_decoder", False):
        what = "a left-to-right model cannot fill masks"
        raise CheckpointError(folder, what, "see the held-out loss in its metrics.jsonl")
    model = MaskedLanguageModel(config, next_sentence=False)
    try:
        missing = model.load(read_weights(folder, model.architecture.prefix))
    except ValueError as error:
        raise CheckpointError(folder, str(error), "give the weights that belong to the config") from error
    if missing:
        raise CheckpointError(folder, f"{missing[0]} is missing", "give a model with its masked-LM head")
    return model


def main(argv: list[str] | None = None) -> int:
    """Evaluate from the command line; prints JSON."""
    parser = ArgumentParser("python -m pretraining.evaluate", "Held-out perplexity of a masked language model.")
    parser.add_argument("model", type=Path, help="folder made by python -m pretraining.run")
    parser.add_argument("--corpus", type=Path, required=True, help="folder made by python -m corpora.build")
    parser.add_argument("--max-length", type=int, help="tokens of a row; default 128, or as many as the model reads")
    parser.add_argument("--rows", type=int, default=4096, help="maximum number of rows, or of rows of a source")
    parser.add_argument("--mask-rate", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--by-source", action="store_true", help="also bits per character of every source")
    arguments = parser.parse(argv)
    scores = evaluate_mlm(
        arguments.model,
        arguments.corpus,
        max_length=arguments.max_length,
        max_rows=arguments.rows,
        mask_rate=arguments.mask_rate,
        seed=arguments.seed,
        by_source=arguments.by_source,
    )
    sys.stdout.write(json.dumps(scores) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
