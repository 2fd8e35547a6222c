"""Fine-tune a generating network on pairs of body and title: `python -m downstream.headline train`.

The loss is that of the titles; AdamW with a linear warm-up and decay. The folder is plain transformers, with
`headline.json` and a model card.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpora.foundation.cards import render_card
from corpora.foundation.config import validate
from corpora.foundation.errors import cannot_write
from corpora.foundation.files import fingerprint, package_path, sha256, write_signed, write_text
from corpora.foundation.machine import no_file_bars, versions
from downstream.headlines.network import HeadlineNetwork
from downstream.headlines.pairs import Pair, read_pairs
from downstream.headlines.settings import SETTINGS_FILE, HeadlineConfig, finished
from pretraining.folders import model_files


def train_headlines(
    sources: Sequence[Path], model: Path, out: Path, overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Fine-tune MODEL on the pairs of the split `train`, and save it; a finished folder is left as it is.

    Args:
        sources: files of articles with titles.
        model: folder of the objective `bart`, `t5`, `hybrid` or `gpt`.
        out: folder for the result.
        overrides: fields of `HeadlineConfig`.

    Returns:
        The content of `headline.json`.

    Raises:
        UsageError: OUT holds another training.
        SuiteError: files, settings or model are unusable.
    """
    config = validate(HeadlineConfig, dict(overrides or {}), "--set")
    pairs = read_pairs(sources, "train")
    task = {
        "settings": config.model_dump(),
        "pairs_sha256": fingerprint([[pair.title, pair.body] for pair in pairs]),
        "model_sha256": sha256(*sorted(model.glob("**/*.safetensors"))),
    }
    if done := finished(out, task):
        return done
    network = HeadlineNetwork.load(model, config.max_title)
    losses = _fit(network, pairs, config)
    facts = task | {"num_pairs": len(pairs), "losses": losses, "versions": versions("torch", "transformers")}
    _save(network, out, facts, name=model.resolve().name)
    return facts


def _fit(network: HeadlineNetwork, pairs: Sequence[Pair], config: HeadlineConfig) -> list[float]:
    """Train, and return the mean loss of every epoch."""
    import torch
    from tqdm import tqdm
    from transformers import get_scheduler

    torch.manual_seed(config.seed)
    model = network.model.to("cuda" if torch.cuda.is_available() else "cpu")
    model.train()
    steps_per_epoch = -(-len(pairs) // config.batch_size)
    num_steps = config.epochs * steps_per_epoch
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.peak_lr)
    schedule = get_scheduler("linear", optimizer, int(config.warmup_ratio * num_steps), num_steps)
    cross_entropy = torch.nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)
    losses: list[float] = []
    with tqdm(total=num_steps, desc="headlines", unit="step", disable=None) as bar:
        for epoch in range(config.epochs):
            order = np.random.default_rng([config.seed, epoch]).permutation(len(pairs))
            total = 0.0
            for first in range(0, len(pairs), config.batch_size):
                some = [pairs[k] for k in order[first : first + config.batch_size]]
                scores, labels = network.title_scores(some)
                loss = cross_entropy(scores.flatten(0, 1), labels.flatten())
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                total += float(loss.detach()) * len(some)
                bar.update(1)
            losses.append(round(total / len(pairs), 4))
            bar.set_postfix(loss=losses[-1])
    return losses


def _save(network: HeadlineNetwork, out: Path, facts: Mapping[str, Any], *, name: str) -> None:
    """Save model, tokenizer, card and settings; the settings last, since they make a folder a finished one."""
    from huggingface_hub import ModelCardData

    try:
        with model_files(out) as scratch, no_file_bars():
            network.model.save_pretrained(scratch)
            network.tokenizer.save_pretrained(scratch)
        head = ModelCardData(
            language="ko",
            library_name="transformers",
            pipeline_tag="summarization" if network.is_encoder_decoder else "text-generation",
            license="other",
            license_name="that of the pairs it was trained on; pretrained model: see its own card",
            model_name=f"{name} for headlines",
        )
        card = package_path("downstream", "templates", "card_headline.md")
        write_text(out / "README.md", render_card(card, head, name=name, facts=facts))
        write_signed(out / SETTINGS_FILE, facts)
    except OSError as error:
        raise cannot_write(out, error) from error
