"""BERT in NumPy: the ids and numbers of transformers, only for folders it understands, and ready without torch."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from corpora.foundation.errors import CheckpointError
from downstream.classify import Classifier
from downstream.encoders.folder import BILSTM_KEY, TASK_KEY
from downstream.encoders.hub import is_bundled
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.runtimes.backends import WAYS
from downstream.runtimes.network import read_finetuned
from downstream.runtimes.numpy_bert import NumpyBert, PlainTokenizer, gelu, is_plain_bert
from downstream.runtimes.predictor import Predictor
from downstream.task import TextExample
from pretraining.vocabulary.tokenizer import save_tokenizer

Fails = Callable[..., AbstractContextManager[None]]

TEXTS = [
    "시의회가 올해 예산을 확정했다.",
    "",
    "경기는 연장 끝에 2대1로 끝났다. " * 30,
    "café 漢字 \u200b [MASK] x",
    "뷁쀍",
]


@pytest.fixture(scope="module")
def folder(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a classifier as fine-tuning leaves it, with weights that answer differently to different texts."""
    out = tmp_path_factory.mktemp("classifier")
    tokenizer = load_tokenizer(standins["klue-bert"])
    torch.manual_seed(1)
    model = load_model(standins["klue-bert"], tokenizer, "AutoModelForSequenceClassification", {"num_labels": 2})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    setattr(model.config, TASK_KEY, "nsmc")
    model.save_pretrained(out)
    save_tokenizer(tokenizer, out)
    return out


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def padded(rows: list[list[int]]) -> tuple[Any, Any]:
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows])
    return ids, np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows])


# --- the ids and numbers of transformers ------------------------------------------------------------------------------

HOSTILE = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from([*TEXTS, "[SEP][CLS]", "가" * 300])


@settings(max_examples=60)
@given(texts=st.lists(HOSTILE, min_size=1, max_size=4), length=st.integers(3, 40) | st.none())
def test_ids_are_those_of_transformers(folder: Path, texts: list[str], length: int | None) -> None:
    ours, theirs = PlainTokenizer.load(folder), load_tokenizer(folder)
    assert ours(texts) == dict(theirs(texts))
    assert ours(texts[0]) == dict(theirs(texts[0]))
    assert ours(texts, add_special_tokens=False) == dict(theirs(texts, add_special_tokens=False))
    cut = {"truncation": True} | ({} if length is None else {"max_length": length})
    assert ours(texts, **cut) == dict(theirs(texts, **cut))
    pairs = texts[::-1]
    cut["truncation"] = "longest_first"
    assert ours(texts, pairs, **cut) == dict(theirs(texts, pairs, **cut))


def test_a_tokenizer_says_of_itself_what_transformers_does(folder: Path) -> None:
    ours, theirs = PlainTokenizer.load(folder), load_tokenizer(folder)
    assert ours.get_vocab() == theirs.get_vocab()
    assert sorted(ours.all_special_ids) == sorted(theirs.all_special_ids)
    for name in ("pad_token_id", "mask_token_id", "mask_token", "model_max_length", "model_input_names"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [ours.convert_ids_to_tokens(k) for k in range(50)] == theirs.convert_ids_to_tokens(list(range(50)))


def test_states_and_means_are_those_of_transformers(folder: Path) -> None:
    bert, model = NumpyBert.load(folder), AutoModel.from_pretrained(folder).eval()
    ids, mask = padded(bert.tokenizer(TEXTS, truncation=True, max_length=64)["input_ids"])
    types = np.arange(ids.size).reshape(ids.shape) % 2
    for kinds in (None, types):
        batch = {"input_ids": ids, "attention_mask": mask} | ({} if kinds is None else {"token_type_ids": kinds})
        with torch.inference_mode():
            theirs = model(**{name: torch.tensor(value) for name, value in batch.items()}).last_hidden_state.numpy()
        ours = bert.states(ids, mask, kinds)
        assert ours.dtype == np.float32
        assert np.abs(ours - theirs)[mask == 1].max() < 2e-5
        means = (theirs * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        assert np.abs(bert.means(ids, mask, kinds) - means).max() < 2e-5
    assert np.abs(bert.states(ids[2:3]) - bert.states(ids, mask)[2:3]).max() < 2e-5  # the longest, without a mask


def test_label_logits_are_those_of_transformers(folder: Path) -> None:
    bert, model = NumpyBert.load(folder), AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids, mask = padded(bert.tokenizer(TEXTS, truncation=True, max_length=64)["input_ids"])
    with torch.inference_mode():
        theirs = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()
    assert np.ptp(theirs[:, 0]) > 0.1
    assert np.abs(bert.label_logits(ids, mask) - theirs).max() < 2e-5


@pytest.mark.parametrize("is_tied", [True, False])
def test_token_logits_are_those_of_transformers(standins: dict[str, Path], tmp_path: Path, is_tied: bool) -> None:
    model = AutoModelForMaskedLM.from_pretrained(standins["kpfbert"], tie_word_embeddings=is_tied).eval()
    if not is_tied:
        with torch.no_grad():
            model.cls.predictions.decoder.weight.normal_()
    model.save_pretrained(tmp_path)
    save_tokenizer(load_tokenizer(standins["kpfbert"]), tmp_path)
    bert = NumpyBert.load(tmp_path)
    assert bert.has_masked_lm_head
    ids = np.array([bert.tokenizer("내년 [MASK]을 의결했다")["input_ids"]])
    with torch.inference_mode():
        theirs = model(input_ids=torch.tensor(ids)).logits[0].numpy()
    assert np.abs(bert.token_logits(bert.states(ids)[0]) - theirs).max() < 2e-5
    assert bert.num_parameters == sum(p.numel() for p in model.parameters())


def test_gelu_is_the_exact_one() -> None:
    x = np.concatenate([np.linspace(-12, 12, 400_000), [0, -0.0, 1e30, -1e30]]).astype(np.float32).reshape(2, -1)
    exact = torch.nn.functional.gelu(torch.tensor(x, dtype=torch.float64)).numpy()
    with np.errstate(over="ignore"):
        ours = gelu(x.copy())
    assert np.abs(ours - exact)[np.abs(x) < 20].max() < 5e-7
    assert ours[1, -2:].tolist() == [np.float32(1e30), 0.0]
    in_place = x[:, :7].copy()
    assert gelu(in_place) is in_place


def test_it_is_a_runtime_that_agrees_with_torch(folder: Path) -> None:
    examples = [TextExample(str(k), text, None, "") for k, text in enumerate(TEXTS * 3)]
    ours, theirs = (Predictor.load(folder, way).outputs(examples)[0] for way in ("numpy", "torch"))
    assert np.abs(np.stack(ours) - np.stack(theirs)).max() < 2e-5
    assert "numpy" in WAYS
    assert Classifier.load(folder).predictor.runtime.name == "numpy"


# --- which folders it takes -------------------------------------------------------------------------------------------


def test_the_bundled_models_are_of_this_kind() -> None:
    assert is_bundled("pressbert-mini")
    root = Path(sys.modules["downstream"].__path__[0]) / "bundled"
    assert all(is_plain_bert(root / name) for name in ("encoder", "classifier", "embedder"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def normalize_otherwise(folder: Path) -> None:
    normalizer = json.loads((folder / "tokenizer.json").read_text())["normalizer"]
    edit(folder / "tokenizer.json", normalizer=normalizer | {"lowercase": True})


def store_in_bfloat16(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    half = {name: value.bfloat16() for name, value in weights.items()}
    save_file(half, folder / "model.safetensors", {"format": "pt"})


def drop_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: edit(folder / "config.json", model_type="electra"),
        lambda folder: edit(folder / "config.json", hidden_act="relu"),
        lambda folder: edit(folder / "config.json", position_embedding_type="relative_key"),
        lambda folder: edit(folder / "config.json", is_decoder=True),
        lambda folder: edit(folder / "tokenizer.json", post_processor=None),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "config.json").write_text("[]"),
        lambda folder: (folder / "model.safetensors").write_bytes(b"damaged"),
        normalize_otherwise,
        store_in_bfloat16,
        drop_a_weight,
    ],
)
def test_what_is_unusual_is_left_to_transformers(copied: Path, change: Callable[[Path], object]) -> None:
    assert is_plain_bert(copied)
    change(copied)
    assert not is_plain_bert(copied)


@pytest.mark.parametrize("kind", ["kobert", "korbert"])
def test_other_vocabularies_are_left_to_transformers(standins: dict[str, Path], kind: str) -> None:
    assert not is_plain_bert(standins[kind])


def test_bfloat16_and_a_bilstm_run_elsewhere(copied: Path, fails: Fails) -> None:
    texts = [TextExample("1", TEXTS[0], None, "")]
    before = Predictor.load(copied, "numpy").outputs(texts)[0]
    store_in_bfloat16(copied)
    after = Predictor.load(copied, "torch").outputs(texts)[0]
    assert np.abs(before[0] - after[0]).max() < 0.1
    assert Classifier.load(copied).predictor.runtime.name == "torch"
    with fails(CheckpointError, copied, "NumPy and Numba run plain BERTs", 'runtime="torch"'):
        Predictor.load(copied, "numpy")
    edit(copied / "config.json", **{BILSTM_KEY: {"features": "last", "frozen": True}})
    with fails(CheckpointError, copied, "a BiLSTM on top"):
        Predictor.load(copied, "numpy")


def test_heads_that_are_not_there_are_told(folder: Path, fails: Fails) -> None:
    bert = NumpyBert.load(folder)
    assert not bert.has_masked_lm_head
    with fails(CheckpointError, folder, "cls.predictions.transform.dense"):
        bert.token_logits(np.zeros((1, bert.hidden_size), dtype=np.float32))


def test_a_vocabulary_that_does_not_fit_is_told(copied: Path, fails: Fails) -> None:
    edit(copied / "config.json", vocab_size=100)
    with fails(CheckpointError, copied, "pieces and the model 100"):
        NumpyBert.load(copied)
    edit(copied / "config.json", vocab_size=10_000)
    with fails(CheckpointError, copied, "do not fit the config"):
        NumpyBert.load(copied)


def test_tokens_of_span_answers_come_from_transformers(copied: Path) -> None:
    edit(copied / "config.json", **{TASK_KEY: "korquad"})
    assert not isinstance(read_finetuned(copied).tokenizer, PlainTokenizer)


# --- ready without torch ----------------------------------------------------------------------------------------------

ONE_LINERS = {
    "classifier": "from downstream.classify import Classifier; Classifier.load().probabilities(['연기가 좋았다'])",
    "encoder": "from downstream.fill_mask import MaskFiller; MaskFiller.load().fill('정말 [MASK] 봤어요')",
    "embedder": "from downstream.embed import encode; encode(['새 다리가 열렸다', '다리가 개통됐다'])",
}


@pytest.mark.parametrize("name", ONE_LINERS)
def test_one_question_is_answered_without_torch(name: str) -> None:
    code = f"import sys; {ONE_LINERS[name]}; print({{'torch', 'transformers'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
