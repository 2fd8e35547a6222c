"""Vectors of texts: their form, that neither batch nor spelling matters, and that they are those of the libraries."""

import json
import os
import shutil
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel

from corpora.foundation.errors import CheckpointError, DataError, UsageError
from downstream.embed import Embedder, bundled_embedder, encode, main
from downstream.embeddings import embedder as embedder_module
from downstream.embeddings import pooling
from downstream.embeddings.embedder import CHARACTERS_PER_TOKEN
from downstream.encoders.tokenizers import load_tokenizer

Fails = Callable[..., AbstractContextManager[None]]

TEXTS = [
    "시의회가 올해 예산을 확정했다.",
    "",
    "경기는 연장 끝에 2대1로 끝났다. " * 12,
    "위원회는 사업을 다시 심사하기로 했다",
    "x",
]


@pytest.fixture(scope="module")
def embedder(standins: dict[str, Path]) -> Embedder:
    return Embedder.load(standins["klue-bert"])


@pytest.fixture(scope="module")
def plain_folder(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that plain transformers loads without our help."""
    folder = tmp_path_factory.mktemp("plain") / "encoder"
    AutoModel.from_pretrained(standins["klue-bert"]).save_pretrained(folder)
    load_tokenizer(standins["klue-bert"]).save_pretrained(folder)
    return folder


@pytest.fixture
def build(plain_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that saves a sentence-transformers folder with the given modules behind the encoder."""

    def save(*modules: Any, max_length: int = 64) -> Path:
        torch.manual_seed(0)
        model = SentenceTransformer(modules=[Transformer(str(plain_folder)), *modules], device="cpu")
        model.max_seq_length = max_length
        folder = tmp_path / "sbert"
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(str(folder), create_model_card=False)
        return folder

    return save


def lengths(vectors: Any) -> Any:
    return np.linalg.norm(vectors.astype(np.float64), axis=1)


def edit_json(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


# --- the form of the result -----------------------------------------------------------------------------------------


def test_vectors_are_single_precision_and_of_length_one(embedder: Embedder) -> None:
    vectors = encode(TEXTS, model=embedder)
    assert (vectors.shape, vectors.dtype) == ((len(TEXTS), embedder.dimension), np.float32)
    assert np.abs(lengths(vectors) - 1).max() < 1e-6


def test_no_texts_give_no_rows_of_the_right_width(embedder: Embedder) -> None:
    vectors = encode([], model=embedder)
    assert (vectors.shape, vectors.dtype) == ((0, 32), np.float32)


def test_any_iterable_will_do(embedder: Embedder) -> None:
    assert np.array_equal(encode(iter(TEXTS), model=embedder), encode(tuple(TEXTS), model=embedder))


def test_it_is_called_as_sentence_transformers_and_topic_models_call_theirs(embedder: Embedder) -> None:
    documents = ["국회가 예산안을 의결했다.", "비가 그쳤다."]
    expected = embedder.encode(documents)
    for more in (
        {"show_progress_bar": False},
        {"show_progress_bar": True, "batch_size": 32},
        {"show_progress_bar": None, "convert_to_numpy": True, "normalize_embeddings": True},
    ):
        np.testing.assert_array_equal(embedder.encode(documents, **more), expected)
    for refused in ({"convert_to_tensor": True}, {"convert_to_numpy": False}, {"normalize_embeddings": False}):
        with pytest.raises(ValueError, match="encode returns"):
            embedder.encode(documents, **refused)


def test_the_same_texts_give_the_same_bytes(embedder: Embedder) -> None:
    assert encode(TEXTS, model=embedder).tobytes() == encode(TEXTS, model=embedder).tobytes()


def test_anything_but_a_list_of_strings_is_refused(embedder: Embedder) -> None:
    cases: list[tuple[Any, dict[str, int], str]] = [
        ("한 문장", {}, "a single string"),
        (["글", None], {}, "None, not a string"),
        ([b"bytes"], {}, "not a string"),
        ([float("nan")], {}, "nan, not a string"),
        (["글"], {"batch_size": 0}, "batch_size=0"),
    ]
    for texts, options, what in cases:
        with pytest.raises(ValueError, match=what):
            encode(texts, model=embedder, **options)


# --- neither batch nor order nor spelling matters -------------------------------------------------------------------

SURROGATES_TOO = st.characters(codec=None, categories=["Lo", "Ll", "Nd", "Po", "So", "Zs", "Cc", "Cs", "Mn"])
HOSTILE = st.text(SURROGATES_TOO, max_size=40) | st.sampled_from(
    ["[PAD]", "[SEP][CLS]", "\0", "가" * 300, "\u1100\u1161"]
)


@settings(max_examples=40)
@given(texts=st.lists(HOSTILE, min_size=1, max_size=9), batch_size=st.integers(1, 5))
@example(texts=["\ud800", "", " \n\t", "\u200b", "\ufffd"], batch_size=2)
def test_a_text_has_its_vector_alone_and_in_any_batch(embedder: Embedder, texts: list[str], batch_size: int) -> None:
    together = encode(texts, model=embedder, batch_size=batch_size)
    assert np.abs(lengths(together) - 1).max() < 1e-6
    for text, vector in zip(texts, together, strict=True):
        assert np.abs(encode([text], model=embedder)[0] - vector).max() < 1e-5


def test_rows_follow_the_order_of_the_texts(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_module, "WINDOW", 3)
    texts = [f"{'예산 ' * (k * 7 % 11)}{k}" for k in range(10)]
    forwards = encode(texts, model=embedder, batch_size=2)
    backwards = encode(texts[::-1], model=embedder, batch_size=3)
    assert np.abs(forwards - backwards[::-1]).max() < 1e-5
    assert len({tuple(row) for row in forwards.round(4).tolist()}) == 10


def test_decomposed_hangul_is_the_same_text(embedder: Embedder) -> None:
    text = TEXTS[0]
    one, two = encode([text, unicodedata.normalize("NFD", text)], model=embedder)
    assert np.abs(one - two).max() < 1e-6


def test_a_lone_surrogate_is_read_as_the_replacement_character(embedder: Embedder) -> None:
    one, two = encode(["예산 \ud83d 확정", "예산 \ufffd 확정"], model=embedder)
    assert np.abs(one - two).max() < 1e-6


def test_texts_without_a_token_share_one_vector(embedder: Embedder) -> None:
    vectors = encode(["", "   ", "\n\n", "\u200b"], model=embedder)
    assert np.abs(vectors - vectors[0]).max() < 1e-6


def test_texts_beyond_the_models_length_are_truncated(build: Callable[..., Path]) -> None:
    short = Embedder.load(build(Pooling(32, "mean"), max_length=16))
    assert short.max_length == 16
    text = "예산을 확정했다. " * 40
    tokens = load_tokenizer(short.folder)(text)["input_ids"]
    assert len(tokens) > 16
    one, two, three = short.encode([text, text * 3, text[: 16 * CHARACTERS_PER_TOKEN]])
    assert np.abs(one - two).max() < 1e-6
    assert np.abs(one - three).max() < 1e-6


def test_a_text_of_a_million_characters_is_not_read_to_its_end(embedder: Embedder) -> None:
    head = "가나다 " * (512 * CHARACTERS_PER_TOKEN // 4)
    one, two = encode([head, head + "끝 " * 500_000], model=embedder)
    assert np.abs(one - two).max() < 1e-6


# --- the vectors are those of the libraries -------------------------------------------------------------------------


def test_an_encoder_is_pooled_by_the_mean_of_its_token_vectors(standins: dict[str, Path]) -> None:
    for kind, folder in standins.items():
        tokenizer, model = load_tokenizer(folder), AutoModel.from_pretrained(folder).eval()
        vectors = encode(TEXTS, model=folder, batch_size=3)
        for text, vector in zip(TEXTS, vectors, strict=True):
            with torch.no_grad():
                tokens = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]  # (T, D), [CLS] to [SEP]
            mean = tokens.mean(dim=0).numpy()
            assert np.abs(vector - mean / np.linalg.norm(mean)).max() < 1e-5, (kind, text)


def test_a_sentence_transformers_folder_gives_that_librarys_vectors(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: dict[str, tuple[list[Any], bool]] = {
        "mean": ([Pooling(32, "mean")], True),
        "mean, normalize": ([Pooling(32, "mean"), Normalize()], True),
        "cls": ([Pooling(32, "cls")], False),
        "mean and max": ([Pooling(32, ("mean", "max"))], False),
        "dense": ([Pooling(32, "mean"), Dense(32, 8), Normalize()], False),
    }
    for name, (modules, runs_without_the_library) in cases.items():
        folder = build(*modules)
        theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
        with monkeypatch.context() as patch:
            if runs_without_the_library:
                patch.setitem(sys.modules, "sentence_transformers", None)  # importing it fails
            ours = encode(TEXTS, model=folder, batch_size=2)
        assert ours.shape == theirs.shape, name
        assert np.abs(ours - theirs).max() < 1e-5, name


def test_a_prompt_that_comes_with_a_model_is_used(build: Callable[..., Path]) -> None:
    folder = build(Pooling(32, "mean"))
    bare = encode(TEXTS, model=folder)
    edit_json(
        folder / "config_sentence_transformers.json",
        lambda config: config | {"prompts": {"news": "기사: "}, "default_prompt_name": "news"},
    )
    prompted = encode(TEXTS, model=folder)
    assert np.abs(prompted - encode([f"기사: {text}" for text in TEXTS], model=Embedder.load(folder))).max() > 1e-3
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
    assert np.abs(prompted - theirs).max() < 1e-5
    assert np.abs(prompted - bare).max() > 1e-3


def test_mean_pooling_is_recognized_in_folders_of_older_versions(build: Callable[..., Path]) -> None:
    folder = build(Pooling(32, "mean"))
    new = encode(TEXTS, model=folder)
    modes = {"cls_token": False, "mean_tokens": True, "max_tokens": False, "mean_sqrt_len_tokens": False}
    older = {"word_embedding_dimension": 32} | {f"pooling_mode_{name}": is_on for name, is_on in modes.items()}
    edit_json(folder / "1_Pooling" / "config.json", lambda _: older)
    edit_json(folder / "sentence_bert_config.json", lambda _: {"max_seq_length": 64, "do_lower_case": False})
    edit_json(
        folder / "modules.json",
        lambda rows: [row | {"type": f"sentence_transformers.models.{row['type'].split('.')[-1]}"} for row in rows],
    )
    assert np.abs(encode(TEXTS, model=folder) - new).max() < 1e-6


def test_half_precision_weights_are_computed_in_single_precision(build: Callable[..., Path]) -> None:
    folder = build(Pooling(32, "mean"))
    single = encode(TEXTS, model=folder)
    SentenceTransformer(str(folder), device="cpu").half().save_pretrained(str(folder), create_model_card=False)
    half = Embedder.load(folder)
    assert {value.dtype for value in load_file(folder / "model.safetensors").values()} == {torch.float16}
    vectors = half.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert 0 < np.abs(vectors - single).max() < 1e-2
    assert np.abs(half.encode(TEXTS, batch_size=1) - vectors).max() < 1e-5


def test_many_texts_have_the_vectors_of_few(build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(Pooling(32, "mean"))
    few = Embedder.load(folder).encode(TEXTS)
    monkeypatch.setattr(pooling, "FEW_PRODUCTS", 0)
    many = Embedder.load(folder).encode(TEXTS, batch_size=2)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        side_by_side = Embedder.load(folder, device="cpu").encode(TEXTS, batch_size=2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert np.abs(few - many).max() < 1e-6
    assert np.abs(many - side_by_side).max() < 1e-6


# --- loading --------------------------------------------------------------------------------------------------------


def test_importing_loads_neither_torch_nor_sentence_transformers() -> None:
    code = "import sys, downstream.embed; print({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_model_that_was_loaded_last_is_cached(build: Callable[..., Path]) -> None:
    folder = build(Pooling(32, "mean"))
    first = Embedder.load(folder)
    assert Embedder.load(str(folder)) is first
    weights = load_file(folder / "model.safetensors")
    save_file({name: value * 0.5 for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    os.utime(folder / "model.safetensors", ns=(1, 1))
    second = Embedder.load(folder)
    assert second is not first
    assert np.abs(second.encode(TEXTS) - first.encode(TEXTS)).max() > 1e-4


def test_the_network_is_not_used(build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(Pooling(32, "mean"), Dense(32, 8))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it opens a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert encode(TEXTS, model=folder).shape == (5, 8)


def test_a_missing_bundle_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: Fails) -> None:
    monkeypatch.setattr(embedder_module, "BUNDLED", tmp_path / "embedder")
    with fails(CheckpointError, tmp_path / "embedder", "no embedder is bundled", "model=", "downstream.embed train"):
        encode(["글"])


def test_the_bundled_embedder_is_the_default(build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(Pooling(32, "mean"))
    monkeypatch.setattr(embedder_module, "BUNDLED", folder)
    assert bundled_embedder() == folder
    assert np.array_equal(encode(TEXTS), encode(TEXTS, model=folder))


def test_an_unknown_model_is_named(fails: Fails) -> None:
    with fails(CheckpointError, "klue-brt", "did you mean 'klue-bert'?"):
        encode(["글"], model="klue-brt")


def break_module(folder: Path) -> None:
    edit_json(folder / "modules.json", lambda rows: [*rows[:-1], rows[-1] | {"type": "my_code.Pooling"}])
    (folder / "my_code.py").write_text("raise AssertionError('foreign code was run')")


def pickle_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def drop_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1." not in name}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def spoil(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    spoilt = {name: value * float("nan") for name, value in weights.items()}
    save_file(spoilt, folder / "model.safetensors", {"format": "pt"})


DAMAGES: tuple[tuple[Callable[[Path], object], str], ...] = (
    (break_module, "custom code, which is never run"),
    (pickle_weights, "pickled weights"),
    (drop_layer, "weights are missing"),
    (spoil, "NaN or an infinite number"),
    (lambda folder: (folder / "modules.json").write_text("[{"), "not valid JSON"),
    (lambda folder: (folder / "modules.json").write_text("{}"), "a dict where a list is expected"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 64), "cannot be read"),
    (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer"),
)


def test_a_folder_that_is_unsafe_or_damaged_is_refused_in_one_line(build: Callable[..., Path]) -> None:
    for damage, what in DAMAGES:
        for dense in ([], [Dense(32, 8)]):  # with our own pooling, and with the library's pipeline
            folder = build(Pooling(32, "mean"), *dense)
            damage(folder)
            with pytest.raises(CheckpointError) as caught:
                encode(["글"], model=folder)
            assert len(str(caught.value).splitlines()) == 1, (what, dense)
            assert what in str(caught.value), (what, dense)


def test_a_pickled_module_is_refused(build: Callable[..., Path], fails: Fails) -> None:
    folder = build(Pooling(32, "mean"), Dense(32, 8))
    weights = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with fails(CheckpointError, weights.with_name("pytorch_model.bin"), "pickled weights"):
        encode(["글"], model=folder)


# --- the command ----------------------------------------------------------------------------------------------------


def test_a_file_of_lines_becomes_an_array_without_pickle(
    embedder: Embedder, write: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [text.strip() for text in TEXTS if text]
    path, out = write("news.txt", "\n".join(lines) + "\n"), tmp_path / "deep" / "vectors.npy"
    assert main(["encode", str(path), "--out", str(out), "--model", str(embedder.folder)]) == 0
    vectors = np.load(out, allow_pickle=False)
    assert np.abs(vectors - encode(lines, model=embedder)).max() < 1e-6
    assert json.loads(capsys.readouterr().out) == {"texts": 4, "dimension": 32, "sha256": embedder.sha256}


def test_a_column_of_records_is_chosen(embedder: Embedder, write: Callable[[str, str], Path], tmp_path: Path) -> None:
    rows = [{"title": "제목 하나", "text": "본문 하나"}, {"title": "제목 둘", "text": "본문 둘"}]
    path = write("news.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    for column, options in {"title": ["--text", "title"], "text": []}.items():
        arguments = ["encode", str(path), "--out", str(tmp_path / "v.npy"), "--model", str(embedder.folder)]
        assert main([*arguments, *options, "--batch-size", "1"]) == 0
        expected = encode([row[column] for row in rows], model=embedder)
        assert np.abs(np.load(tmp_path / "v.npy", allow_pickle=False) - expected).max() < 1e-5


def test_bad_records_get_no_row_where_the_ids_of_the_rows_are_written(
    embedder: Embedder,
    write: Callable[[str, str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fails: Fails,
) -> None:
    path = write("news.jsonl", '{"id": "a", "title": "예산안"}\n{"id": "b"}\n{"title": "날씨"}\n{"id": "d", "title"\n')
    out, ids = tmp_path / "v.npy", tmp_path / "ids.txt"
    arguments = ["encode", str(path), "--text", "title", "--out", str(out), "--model", str(embedder.folder)]
    with fails(DataError, f"{path}:2", "--ids FILE"):
        main(arguments)
    assert not out.exists()
    assert main([*arguments, "--ids", str(ids)]) == 1
    assert np.abs(np.load(out, allow_pickle=False) - encode(["예산안", "날씨"], model=embedder)).max() < 1e-5
    assert ids.read_text(encoding="utf-8").splitlines() == ["a", "news.jsonl:3"]
    captured = capsys.readouterr()
    assert json.loads(captured.out)["texts"] == json.loads(captured.out)["rejected"] == 2
    assert [line.split(": ")[0].rpartition(":")[2] for line in captured.err.splitlines()] == ["2", "4"]


def test_mistakes_of_the_command_are_named(
    embedder: Embedder, write: Callable[[str, str], Path], tmp_path: Path, fails: Fails
) -> None:
    path, out, model = str(write("a.txt", "글\n")), str(tmp_path / "v.npy"), str(embedder.folder)
    usual = ["--out", out, "--model", model]
    with fails(UsageError, "python -m downstream.embed", "invalid choice"):
        main(["encod", path])
    with fails(UsageError, "--batch-size", "0 is less than 1"):
        main(["encode", path, *usual, "--batch-size", "0"])
    with fails(UsageError, "python -m downstream.embed encode", "did you mean '--model'?"):
        main(["encode", path, "--out", out, "--modell", model])
    with fails(DataError, tmp_path / "nowhere.txt", "No such file"):
        main(["encode", str(tmp_path / "nowhere.txt"), *usual])
    assert not Path(out).exists()


def test_the_process_ends_with_code_2_and_one_line() -> None:
    command = [sys.executable, "-m", "downstream.embed", "encode", "a.txt", "--out", "b.npy", "--text"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
