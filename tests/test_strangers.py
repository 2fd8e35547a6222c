"""Model folders of other people, of every kind that is known: converted, fine-tuned and scored by one command each."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpora.documents import read_documents
from corpora.foundation.errors import CheckpointError
from downstream.encoders import __main__ as convert_command
from downstream.encoders.folder import ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from eval import run_all
from pretraining.recipe import SAMPLE
from pretraining.vocabulary.wordpiece import train_wordpiece

Fails = Callable[..., AbstractContextManager[None]]

VOCAB_SIZE = 1600
SIZE: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
BERT, ROBERTA = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
KINDS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "bert": ("BertForPreTraining", "wordpiece", {}),
    "roberta": ("RobertaForMaskedLM", "byte-level", {"max_position_embeddings": 130, "type_vocab_size": 1}),
    # As KoELECTRA's: the discriminator, with narrower embeddings.
    "electra": ("ElectraForPreTraining", "wordpiece", {"embedding_size": 16}),
    "albert": ("AlbertForPreTraining", "unigram", {"embedding_size": 16}),
    "deberta-v2": ("DebertaV2ForMaskedLM", "unigram", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "modernbert": ("ModernBertForMaskedLM", "byte-level", {"global_attn_every_n_layers": 2}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "xlm-unigram", {"max_position_embeddings": 130, "type_vocab_size": 1}),
}
"""Architecture, tokenizer and settings of a stand-in by its model type."""


CLASSES = {
    "bert": "BertTokenizerFast",
    "roberta": "RobertaTokenizerFast",
    "electra": "ElectraTokenizerFast",
    "albert": "AlbertTokenizerFast",
    "deberta-v2": "DebertaV2TokenizerFast",
    "modernbert": "PreTrainedTokenizerFast",
    "xlm-roberta": "XLMRobertaTokenizerFast",
}
"""Tokenizer classes as the hub's folders name them."""


def train_tokenizer(kind: str, lines: list[str]) -> Any:
    """Return a small tokenizer as publishers save it: WordPiece, byte-level BPE or a SentencePiece unigram."""
    if kind == "wordpiece":
        return train_wordpiece(lines, VOCAB_SIZE)
    is_roberta = kind in {"byte-level", "xlm-unigram"}
    special = ROBERTA if is_roberta else BERT
    pad, unknown, first, last, mask = (ROBERTA[k] for k in (1, 3, 0, 2, 4)) if is_roberta else BERT
    trainer: Any
    if kind == "byte-level":
        tokenizer = Tokenizer(models.BPE(unk_token=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=list(special), initial_alphabet=alphabet)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=VOCAB_SIZE, special_tokens=list(special), unk_token=unknown)
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}" if is_roberta else f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    roles = {"pad_token": pad, "unk_token": unknown, "cls_token": first, "sep_token": last, "mask_token": mask}
    library: Any = transformers
    return library.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder with random weights for each kind. Nobody writes into them."""
    root = tmp_path_factory.mktemp("strangers")
    lines = [line for document in islice(read_documents(SAMPLE), 40) for line in document.text.splitlines()]
    made = {kind: train_tokenizer(kind, lines) for _, kind, _ in KINDS.values()}
    for kind, (architecture, tokenizer_kind, settings) in KINDS.items():
        tokenizer = made[tokenizer_kind]
        auto_config: Any = transformers.AutoConfig
        ids = {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer)}
        config = auto_config.for_model(kind, **{**SIZE, **ids, **settings})
        torch.manual_seed(3)
        getattr(transformers, architecture)(config).save_pretrained(root / kind)
        tokenizer.save_pretrained(root / kind)
        settings_file = root / kind / "tokenizer_config.json"
        published = json.loads(settings_file.read_text(encoding="utf-8")) | {"tokenizer_class": CLASSES[kind]}
        settings_file.write_text(json.dumps(published), encoding="utf-8")
    return {kind: root / kind for kind in KINDS}


def pickle_copy(folder: Path, out: Path, parts: int = 1) -> Path:
    """Copy a folder with its weights pickled, in one file or several, as before safetensors."""
    out.mkdir(parents=True)
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            (out / path.name).write_bytes(path.read_bytes())
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    for part in range(parts):
        name = "pytorch_model.bin" if parts == 1 else f"pytorch_model-{part + 1:05}-of-{parts:05}.bin"
        torch.save({key: weights[key] for key in names[part::parts]}, out / name)
    return out


def hidden(folder: Path) -> torch.Tensor:
    """Return the hidden states of a text and of a pair, by the suite's own loading."""
    tokenizer = load_tokenizer(folder)
    model = load_model(folder, tokenizer, "AutoModel", {}).eval()
    batch = tokenizer(
        ["시의회가 예산안을 의결했다.", "예산"], ["주민은 반겼다.", "어제"], padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        states: torch.Tensor = model(**batch).last_hidden_state
    return states


def test_pickled_folders_of_every_kind_are_converted(
    strangers: dict[str, Path], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (kind, folder) in enumerate(strangers.items()):
        with subtests.test(kind=kind):
            pickled, out = pickle_copy(folder, tmp_path / f"{kind}-bin", parts=1 + number % 2), tmp_path / kind
            with pytest.raises(CheckpointError, match="convert once"):
                load_model(pickled, load_tokenizer(pickled), "AutoModel", {})
            assert convert_command.main([str(pickled), "--out", str(out)]) == 0
            before, after = load_file(folder / "model.safetensors"), load_file(out / "model.safetensors")
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
            assert ModelFolder(out).architectures == (KINDS[kind][0],)
            assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 128
            assert torch.equal(hidden(out), hidden(folder))


def test_heads_and_poolers_that_a_folder_lacks_are_not_made_up(
    strangers: dict[str, Path], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for kind, dropped, architecture, has_pooler in (
        ("bert", ("cls.seq_relationship", "bert.pooler"), "BertForMaskedLM", False),
        ("bert", ("cls.",), "BertModel", True),
        ("bert", ("cls.", "bert.pooler"), "BertModel", False),
        ("albert", ("sop_classifier", "albert.pooler"), "AlbertForMaskedLM", False),
        ("electra", ("discriminator",), "ElectraModel", False),
        ("roberta", ("lm_head",), "RobertaModel", False),
    ):
        with subtests.test(kind=kind, dropped=dropped):
            source = pickle_copy(strangers[kind], tmp_path / f"{architecture}-{has_pooler}-bin")
            state = torch.load(source / "pytorch_model.bin", weights_only=True)
            torch.save({k: v for k, v in state.items() if not k.startswith(dropped)}, source / "pytorch_model.bin")
            out = tmp_path / f"{architecture}-{has_pooler}"
            convert_command.main([str(source), "--out", str(out)])
            assert ModelFolder(out).architectures == (architecture,)
            assert any("pooler" in name for name in load_file(out / "model.safetensors")) == has_pooler
            assert torch.equal(hidden(out), hidden(strangers[kind]))


def test_weights_that_a_kind_needs_are_missed(
    strangers: dict[str, Path], tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    for kind, folder in strangers.items():
        with subtests.test(kind=kind):
            source = pickle_copy(folder, tmp_path / kind)
            state = torch.load(source / "pytorch_model.bin", weights_only=True)
            prefix = next(name for name in state if "embeddings" in name).partition(".")[0]
            gone = [name for name in state if name.startswith(prefix) and "pooler" not in name][-1]
            torch.save({name: part for name, part in state.items() if name != gone}, source / "pytorch_model.bin")
            with fails(CheckpointError, source / "pytorch_model.bin", "1 encoder weights are missing"):
                convert_command.main([str(source), "--out", str(tmp_path / f"{kind}-out")])


@pytest.mark.slow
def test_one_command_makes_a_row_of_a_strangers_folder(strangers: dict[str, Path], tmp_path: Path) -> None:
    folders = [f"{kind}-of-theirs={folder}" for kind, folder in strangers.items()]
    arguments = ["--tasks", "nsmc-sample", "klue-sts-sample", "--seeds", "1", "--set", "epochs=0.05"]
    # Questions need the offsets of every tokenizer; a few of them are enough.
    arguments += ["--set", "max_length=64", "--out", str(tmp_path), "--without", "noise", "cost"]
    assert run_all.main(["--models", *folders, *arguments]) == 0
    rows = json.loads((tmp_path / "leaderboard.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["source"] == "measured"]
    assert {row["status"] for row in rows} == {"ok"}
    assert {(row["model"], row["task"]) for row in rows} == {
        (f"{kind}-of-theirs", task) for kind in KINDS for task in ("nsmc-sample", "klue-sts-sample")
    }
    assert all(row["num_parameters"] > 1000 for row in rows)
