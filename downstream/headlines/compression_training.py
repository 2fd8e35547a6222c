"""Train the network that shortens sentences, on articles with titles: `python -m downstream.headline train`.

A unit is to be kept as far as its morphemes lie on the longest common subsequence of its sentence and the title, in
which words weigh more than particles. The loss is the cross-entropy of keeping units and tails; of transitions it is
that of the next unit, between units of which the title has at least half.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.cards import render_card
from corpora.foundation.config import validate
from corpora.foundation.errors import DataError, cannot_write
from corpora.foundation.files import fingerprint, package_path, write_signed, write_text
from corpora.foundation.machine import versions
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import BUNDLED_SOURCE, bundled_or_folder
from downstream.headlines.compression import (
    WEIGHTS_FILE,
    Network,
    Read,
    UnitReader,
    Weights,
)
from downstream.headlines.pairs import Pair, read_pairs
from downstream.headlines.settings import SETTINGS_FILE, CompressionConfig, finished
from downstream.headlines.transitions import (
    BETWEEN,
    BORDERS,
    NUM_BIASES,
    Floats,
    Grid,
    Transitions,
    grid,
    scores,
    with_borders,
)
from downstream.summaries.rouge import morphemes

PARTICLE_WEIGHT = 0.2
PARTICLE_TAGS = ("J", "E", "XS", "VC")
LONGEST_COMPARED = 400
"""Morphemes of a sentence that are compared with a title."""
SHORTEST_CHAIN = 3
"""Kept units of a sentence from which transitions are learned."""
CHAINS_PER_STEP = 16
FIRST_SPREAD = 0.02
"""Standard deviation of the initial weights of transitions."""
HELD = 0.1
"""Added to the spread of each feature, so that rare ones are not blown up."""


def train_compression(
    sources: Sequence[Path], out: Path, encoder: str = BUNDLED_SOURCE, overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Train on the pairs of the split `train`, and save the folder; a finished one is left as it is.

    Args:
        sources: files of articles with titles.
        out: folder for the result.
        encoder: folder of a plain BERT, or `bundled`.
        overrides: fields of `CompressionConfig`.

    Returns:
        The content of `headline.json`.

    Raises:
        UsageError: OUT holds another training.
        SuiteError: files, settings or encoder are unusable.
    """
    config = validate(CompressionConfig, dict(overrides or {}), "--set")
    pairs = read_pairs(sources, "train")
    folder = bundled_or_folder(encoder, "encoder")
    task = {
        "encoder": encoder,
        "encoder_sha256": ModelFolder(folder).digest(),
        "settings": config.model_dump(),
        "pairs_sha256": fingerprint([[pair.title, pair.body] for pair in pairs]),
    }
    if done := finished(out, task):
        return done
    reads, targets = read_targets(UnitReader.load(folder), pairs)
    network, losses = fit_network(reads, targets, config)
    transitions, transition_losses = fit_transitions(reads, targets, config)
    facts = task | {
        "files": [source.name for source in sources],
        "num_pairs": len(pairs),
        "losses": losses,
        "transition_losses": transition_losses,
        "versions": versions("torch", "kiwipiepy"),
    }
    _save(Weights(network, transitions), out, facts)
    return facts


def _save(weights: Weights, out: Path, facts: Mapping[str, Any]) -> None:
    """Save weights, card and settings; the settings last, since they make a folder a finished one."""
    from huggingface_hub import ModelCardData

    try:
        out.mkdir(parents=True, exist_ok=True)
        weights.save(out / WEIGHTS_FILE)
        head = ModelCardData(
            language="ko",
            library_name="pressbert",
            license="other",
            license_name="that of the pairs it was trained on",
            pipeline_tag="summarization",
            model_name="headlines by deletion",
        )
        card = package_path("downstream", "templates", "card_compressor.md")
        write_text(out / "README.md", render_card(card, head, facts=facts))
        write_signed(out / SETTINGS_FILE, facts)
    except OSError as error:
        raise cannot_write(out, error) from error


def read_targets(reader: UnitReader, pairs: Sequence[Pair]) -> tuple[list[Read], list[Floats]]:
    """Return the sentences of the leads, and for each what a title has of its units, (n, 2).

    Raises:
        DataError: there is no sentence, or none shares enough with its title.
    """
    from tqdm import tqdm

    reads: list[Read] = []
    targets: list[Floats] = []
    for pair in tqdm(pairs, desc="reading", unit="article", disable=None):
        title = morphemes(pair.title)
        for read in reader.read(pair.body):
            reads.append(read)
            targets.append(targets_of(read, title))
    if not any(len(kept_of(each)) >= SHORTEST_CHAIN for each in targets):
        what = f"no sentence shares {SHORTEST_CHAIN} words with its title"
        raise DataError("the pairs", what, "give articles with a body and an editor's title")
    return reads, targets


def kept_of(targets: Floats) -> list[int]:
    """Return the units of which a title has at least half."""
    return [int(k) for k in np.flatnonzero(targets[:, 0] >= 0.5)]


def fit_network(
    reads: Sequence[Read], targets: Sequence[Floats], config: CompressionConfig
) -> tuple[Network, list[float]]:
    """Fit the probabilities of keeping; returns the network and the mean loss of every epoch."""
    import torch
    from tqdm import tqdm

    x, y = np.concatenate([read.features for read in reads]), np.concatenate(targets)
    mean, spread = x.mean(0), x.std(0) + HELD
    inputs, labels = torch.from_numpy((x - mean) / spread), torch.from_numpy(y)
    torch.manual_seed(config.seed)
    network = torch.nn.Sequential(
        torch.nn.Dropout(config.dropout),
        torch.nn.Linear(x.shape[1], config.hidden_size),
        torch.nn.ReLU(),
        torch.nn.Dropout(config.dropout),
        torch.nn.Linear(config.hidden_size, 2),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.peak_lr, weight_decay=config.weight_decay)
    order = torch.Generator().manual_seed(config.seed)
    losses: list[float] = []
    for _ in tqdm(range(config.epochs), desc="training", unit="epoch", disable=None):
        total = 0.0
        for some in torch.split(torch.randperm(len(x), generator=order), config.batch_size):
            loss: Any = torch.nn.functional.binary_cross_entropy_with_logits(network(inputs[some]), labels[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(some)
        losses.append(round(total / len(x), 4))
    weights = [p.detach().numpy() for p in network.parameters()]
    hidden = weights[0].T / spread[:, None]  # the network standardizes the features itself
    return Network(hidden, weights[1] - mean @ hidden, weights[2].T, weights[3]), losses


def fit_transitions(
    reads: Sequence[Read], targets: Sequence[Floats], config: CompressionConfig
) -> tuple[Transitions, list[float]]:
    """Fit which unit follows which; returns the weights and the mean loss of every epoch."""
    import torch
    from tqdm import tqdm

    x = np.concatenate([read.own for read in reads])
    mean, spread = x.mean(0), x.std(0) + HELD
    chains: list[tuple[Any, Grid, list[int]]] = []
    for read, target in zip(reads, targets, strict=True):
        if len(kept := kept_of(target)) >= SHORTEST_CHAIN:
            rows = torch.from_numpy(with_borders((read.own - mean) / spread))
            chains.append((rows, _of_tensors(grid(len(read.units))), [0, *(k + 1 for k in kept), len(rows) - 1]))
    torch.manual_seed(config.seed)
    weights = torch.nn.Parameter(torch.randn(x.shape[1] + 3, 2 * config.transition_size + NUM_BIASES) * FIRST_SPREAD)
    distances = torch.nn.Parameter(torch.zeros(3, len(BORDERS)))
    optimizer = torch.optim.AdamW([weights, distances], lr=config.peak_lr, weight_decay=config.weight_decay)
    order = torch.Generator().manual_seed(config.seed)
    losses: list[float] = []
    for _ in tqdm(range(config.epochs), desc="training transitions", unit="epoch", disable=None):
        total = count = 0.0
        for some in torch.split(torch.randperm(len(chains), generator=order), CHAINS_PER_STEP):
            found = [
                _chain_loss(torch.nn.functional.dropout(rows, config.dropout), weights, distances, of, kept)
                for rows, of, kept in (chains[k] for k in some.tolist())
            ]
            number = sum(len(chains[k][2]) - 1 for k in some.tolist())
            loss: Any = torch.stack(found).sum() / number
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * number
            count += number
        losses.append(round(total / count, 4))
    fitted = weights.detach().numpy()
    scaled = fitted[:-3] / spread[:, None]  # the model standardizes the features itself
    borders = fitted[-3:].copy()
    borders[BETWEEN] -= mean @ scaled
    return Transitions(np.concatenate([scaled, borders]), distances.detach().numpy()), losses


def _of_tensors(of: Grid) -> Grid:
    import torch

    return Grid(*(torch.from_numpy(array) for array in vars(of).values()))


def _chain_loss(rows: Any, weights: Any, distances: Any, of: Grid, kept: Sequence[int]) -> Any:
    """Return the cross-entropy of every next row of a chain, summed."""
    found = scores(rows, weights, distances, of).masked_fill(~of.is_behind, -math.inf)
    return -found[kept[:-1]].log_softmax(-1)[range(len(kept) - 1), kept[1:]].sum()


def targets_of(read: Read, title: Sequence[str]) -> Floats:
    """Return what shares of the stems and tails of the units a title has, (n, 2)."""
    forms = [form for unit in read.units for form in unit.morphemes]
    weights = [PARTICLE_WEIGHT if tag.startswith(PARTICLE_TAGS) else 1.0 for unit in read.units for tag in unit.tags]
    is_shared = on_common_subsequence(forms[:LONGEST_COMPARED], weights, title)
    is_shared = np.pad(is_shared, (0, len(forms) - len(is_shared)))
    rows, start = [], 0
    for unit in read.units:
        own = is_shared[start : start + len(unit.morphemes)]
        start += len(own)
        stem, tail = own[: unit.num_stem], own[unit.num_stem :]
        rows.append([stem.mean() if len(stem) else 0.0, tail.mean() if len(tail) else 0.0])
    return np.array(rows, np.float32)


def on_common_subsequence(a: Sequence[str], weights: Sequence[float], b: Sequence[str]) -> NDArray[np.bool_]:
    """Return which elements of A lie on the heaviest common subsequence of A and B, bool (len(a),)."""
    best = np.zeros((len(a) + 1, len(b) + 1))
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            matched = best[i + 1, j + 1] + weights[i] if a[i] == b[j] else 0.0
            best[i, j] = max(best[i + 1, j], best[i, j + 1], matched)
    is_shared = np.zeros(len(a), np.bool_)
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j] and best[i, j] == best[i + 1, j + 1] + weights[i]:
            is_shared[i] = True
            i, j = i + 1, j + 1
        elif best[i, j] == best[i + 1, j]:
            i += 1
        else:
            j += 1
    return is_shared
