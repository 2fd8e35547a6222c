"""Model folders: what a folder holds, from its files alone, without loading weights.

    for folder in bundled_models():
        print(folder.kind, folder.path)

`ModelFolder` is the only reader of config.json. Nothing here imports torch or transformers.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from corpora.foundation.errors import CheckpointError, SuiteError
from corpora.foundation.files import package_path, sha256, write_json
from downstream.families.classification import Classification
from downstream.families.span_qa import SpanQA
from downstream.task import get_task
from pretraining.data.positions import row_length
from pretraining.folders import CONFIG_FILES, SEAL_FILE, read_config, read_settings_file, seal

Kind: TypeAlias = Literal["summarizer", "embedder", "classifier", "reader", "encoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)

BUNDLED = package_path("downstream", "bundled")
"""The models that come with the package; see `downstream.bundle`."""
TOKENIZER_CONFIG = "tokenizer_config.json"
NO_LIMIT = 1e9
PIPELINE_FILE = "modules.json"
"""Every sentence-transformers folder has it, and no plain encoder."""
SUMMARIZER_FILE = "summarizer.json"
SCORER_FILE = "head.json"
"""Settings of a sentence scorer in the manner of BertSumExt."""
KORBERT_VOCAB = "vocab.korean.rawtext.list"
SAFE_FILES = ("*.json", "*.txt", "*.model", "*.safetensors", KORBERT_VOCAB)
RECORDS = ("result.json", "manifest.json", "recipe.json", "data.json", "held-out-*.json", SEAL_FILE)
"""Files that the suite writes beside a model: how it was trained and how it scored."""
TASK_KEY = "finetuning_task"
"""Entry of a fine-tuned model's config.json, by transformers' name for it."""
BILSTM_KEY = "bilstm"
"""Entry of config.json that only a model with a BiLSTM on its encoder has."""


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a model in the layout of transformers or sentence-transformers."""

    path: Path

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Contents of config.json, as far as `pretraining.folders` reads it.

        Raises:
            CheckpointError: the file is missing or damaged, or a value is out of bounds.
        """
        file = self._config_file
        if file is None:
            raise CheckpointError(self.path, f"no {CONFIG_FILES[0]} in it", "give the folder of a transformers model")
        return read_config(file)

    @property
    def asks_for_code(self) -> bool:
        """Whether config.json names code to load with the model, which nothing here does.

        Raises:
            CheckpointError: the file is damaged.
        """
        return self._config_file is not None and "auto_map" in read_settings_file(self._config_file)

    @property
    def _config_file(self) -> Path | None:
        return next((self.path / name for name in CONFIG_FILES if (self.path / name).is_file()), None)

    @property
    def has_config(self) -> bool:
        """Whether there is a config.json."""
        return self._config_file is not None

    def save_config(self, changes: Mapping[str, Any]) -> None:
        """Write config.json again with CHANGES."""
        write_json(self.path / CONFIG_FILES[0], {**self.config, **changes})
        self.seal_again()

    def seal_again(self) -> None:
        """Write the digests of the files again, if there are any: the change is ours."""
        if (self.path / SEAL_FILE).is_file():
            seal(self.path)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.resolve().name

    @property
    def is_bundled(self) -> bool:
        """Whether the model comes with the package."""
        return self.path.resolve().is_relative_to(BUNDLED.resolve())

    @property
    def model_type(self) -> str:
        """Name of the architecture, e.g. `bert`, which is also the default."""
        return str(self.config.get("model_type", "bert"))

    @property
    def architectures(self) -> tuple[str, ...]:
        """Names of the model classes, e.g. `BertForMaskedLM`."""
        return tuple(map(str, self.config.get("architectures") or ()))

    @property
    def has_masked_lm_head(self) -> bool:
        """Whether the model was saved with a head that predicts tokens.

        `ElectraForPreTraining` has none: it detects replaced tokens.
        """
        return any(name.endswith("ForMaskedLM") or name == "BertForPreTraining" for name in self.architectures)

    @property
    def has_bilstm(self) -> bool:
        """Whether a BiLSTM stands on the encoder; see `downstream.finetuning.bilstm`."""
        return BILSTM_KEY in self.config

    @property
    def is_finetuned(self) -> bool:
        """Whether config.json names a task."""
        return bool(self.config.get(TASK_KEY))

    @property
    def task_name(self) -> str:
        """Name of the task that the model was fine-tuned on.

        Raises:
            CheckpointError: config.json names none.
        """
        if not self.is_finetuned:
            what = f"{CONFIG_FILES[0]} does not say which task it was fine-tuned on"
            raise CheckpointError(self.path, what, "give a folder of python -m downstream.finetune")
        return str(self.config[TASK_KEY])

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels by their ids; empty if config.json lists none."""
        names = {int(id_): str(name) for id_, name in (self.config.get("id2label") or {}).items()}
        return tuple(names[id_] for id_ in sorted(names))

    @property
    def vocab_size(self) -> int:
        """Number of token embeddings V; 0 if config.json does not say."""
        return int(self.config.get("vocab_size") or 0)

    @property
    def hidden_size(self) -> int:
        """Width D; 0 if config.json does not say."""
        return int(self.config.get("hidden_size") or 0)

    @property
    def num_attention_heads(self) -> int:
        """Heads of each layer; 0 if config.json does not say."""
        return int(self.config.get("num_attention_heads") or 0)

    @property
    def max_positions(self) -> int | None:
        """Longest input in tokens that the positions allow; None if config.json does not say."""
        if not (positions := int(self.config.get("max_position_embeddings") or 0)):
            return None
        if "roberta" not in self.model_type:
            return positions
        # RoBERTa numbers positions from pad_token_id + 1.
        padding = self.config.get("pad_token_id", 1)
        return positions - int(padding or 0) - 1

    @property
    def trained_positions(self) -> int | None:
        """Longest input in tokens that the encoder was pretrained on, as far as config.json or a manifest say."""
        known = [number for number in (self.max_positions, row_length(self.path)) if number]
        return min(known) if known else None

    @cached_property
    def max_length(self) -> int | None:
        """Length in tokens at which plain transformers truncates: that of tokenizer_config.json; None if there is none.

        Raises:
            CheckpointError: tokenizer_config.json is not a JSON object.
        """
        file = self.path / TOKENIZER_CONFIG
        if not file.is_file():
            return None
        number = read_settings_file(file).get("model_max_length")
        # Without a limit transformers writes 10^30.
        return int(number) if isinstance(number, int | float) and 0 < number < NO_LIMIT else None

    @property
    def is_sentence_transformers(self) -> bool:
        """Whether the folder is a sentence-transformers pipeline."""
        return (self.path / PIPELINE_FILE).is_file()

    @property
    def is_sentence_scorer(self) -> bool:
        """Whether the folder is an encoder with a head that scores sentences (BertSumExt)."""
        return (self.path / SCORER_FILE).is_file()

    @property
    def is_summarizer(self) -> bool:
        """Whether the folder is a summarizer: a linear one or a sentence scorer."""
        return self.is_sentence_scorer or (self.path / SUMMARIZER_FILE).is_file()

    @cached_property
    def kind(self) -> Kind:
        """What the model is good for.

        Raises:
            CheckpointError: the folder is missing, or holds no model of a known kind.
        """
        if not self.path.is_dir():
            raise CheckpointError(self.path, "no such folder", "check the path")
        if self.is_summarizer:
            return "summarizer"
        if self.is_sentence_transformers:
            return "embedder"
        if self.has_config and self.is_finetuned:
            return self._finetuned_kind()
        if self.has_config and self.has_masked_lm_head:
            return "encoder"
        fix = "give a folder that this suite saved: a summarizer, an embedder, a fine-tuned model or an encoder"
        raise CheckpointError(self.path, "no model of a known kind in it", fix)

    def _finetuned_kind(self) -> Kind:
        task = get_task(self.task_name)
        if isinstance(task.family, SpanQA):
            return "reader"
        if isinstance(task.family, Classification) and not task.takes_pairs:
            return "classifier"
        what = f"fine-tuned on {task.title}, which is neither a label of a text nor an answer in a passage"
        raise CheckpointError(self.path, what, "give a folder fine-tuned on nsmc, hate, korquad or klue-mrc")

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, those of the modules of a sentence-transformers folder included."""
        inside = self.path.glob("*/*.safetensors") if self.is_sentence_transformers else ()
        return sorted([*self.path.glob("*.safetensors"), *inside])

    @property
    def weights_bytes(self) -> int:
        """Size of the weights on disk."""
        return sum(path.stat().st_size for path in self.weight_files)

    @property
    def size_bytes(self) -> int:
        """Size of the folder on disk."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    @cached_property
    def num_parameters(self) -> int:
        """Parameters of the encoder without its head, from the headers of the weight files."""
        from safetensors import safe_open

        counts: dict[str, int] = {}
        for path in self.weight_files:
            with safe_open(path, "numpy") as file:
                names: list[str] = list(file.keys())
                counts |= {name: math.prod(file.get_slice(name).get_shape()) for name in names}
        prefixes = (name.partition("embeddings.")[0] for name in counts if ".embeddings." in f".{name}")
        prefix = next(prefixes, None)
        return sum(count for name, count in counts.items() if prefix is not None and name.startswith(prefix))

    def digest_files(self) -> list[Path]:
        """Return the files that decide what the encoder computes, in a fixed order: weights, config and tokenizer."""
        found = sorted(path for pattern in SAFE_FILES for path in self.path.glob(pattern))
        return [path for path in found if not any(path.match(record) for record in RECORDS)]

    def digest(self) -> str:
        """Return the sha256 of the files that decide what the encoder computes."""
        return sha256(*self.digest_files())


def bundled_models() -> list[ModelFolder]:
    """Return the models that come with the package and are installed."""
    return find_models([BUNDLED])


def find_models(folders: Iterable[Path]) -> list[ModelFolder]:
    """Return the models in FOLDERS: each is a model, or holds models one level below.

    Other folders are skipped; `ModelFolder.kind` says why.
    """
    found: dict[Path, ModelFolder] = {}
    for folder in folders:
        inside = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        for path in (folder, *inside):
            model = ModelFolder(path)
            try:
                _ = model.kind
            except SuiteError:
                continue
            found.setdefault(path.resolve(), model)
    return sorted(found.values(), key=lambda model: (KINDS.index(model.kind), not model.is_bundled, str(model.path)))
