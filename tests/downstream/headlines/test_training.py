"""Fine-tuning on pairs: tiny encoder-decoders and decoders learn to write titles, and the command uses them."""

import io
import json
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    ModernBertDecoderConfig,
    ModernBertDecoderForCausalLM,
    PreTrainedModel,
)

from corpora.foundation.errors import CheckpointError, DataError, RecipeError, UsageError
from downstream.headline import main
from downstream.headlines.network import IGNORED, HeadlineNetwork
from downstream.headlines.pairs import NUM_BUCKETS, Pair, read_pairs, split_of
from downstream.headlines.training import train_headlines
from downstream.headlines.writer import HeadlineWriter
from pretraining.vocabulary.tokenizer import cased_tokenizer, save_tokenizer

Fails = Callable[..., AbstractContextManager[None]]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = ("새", "큰", "작은", "높은", "낮은", "넓은")
THINGS = ("버스", "도서관", "시장", "공원", "학교", "병원", "체육관", "미술관")


def articles() -> list[dict[str, str]]:
    """Return texts whose titles follow from their first sentences."""
    rest = "주민들은 반겼다 . " * 14
    return [
        {"title": f"{size} {thing} 문 연다", "text": f"시는 내년에 {size} {thing} 을 연다고 밝혔다 . {rest}"}
        for size in SIZES
        for thing in THINGS
    ]


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    lines = [json.dumps(article, ensure_ascii=False) for article in articles()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def save(model: PreTrainedModel, folder: Path, words: list[str]) -> Path:
    model.save_pretrained(folder)
    tokenizer = cased_tokenizer({token: k for k, token in enumerate([*SPECIAL, *words])})
    tokenizer.model_max_length = 64
    save_tokenizer(tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders with random weights as pretraining saves them. Tests do not change them."""
    root = tmp_path_factory.mktemp("models")
    words = sorted({word for article in articles() for text in article.values() for word in text.split()})
    size, ends = len(SPECIAL) + len(words), {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    torch.manual_seed(0)
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 1), ("ffn_dim", 64))}
    sides |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart = BartConfig(
        vocab_size=size, d_model=32, max_position_embeddings=64, dropout=0.0, decoder_start_token_id=2, **sides, **ends
    )
    bart.forced_eos_token_id = None
    decoder = ModernBertDecoderConfig(
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        cls_token_id=2,
        sep_token_id=3,
        **ends,
    )
    save(BartForConditionalGeneration(bart), root / "bart", words)
    save(ModernBertDecoderForCausalLM(decoder), root / "hybrid" / "decoder", words)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    save(BertModel(BertConfig(vocab_size=size, **shape)), root / "bert", words)
    return {name: root / name for name in ("bart", "hybrid", "bert")}


def test_pairs_are_divided_by_their_titles(pairs_file: Path, tmp_path: Path, fails: Fails) -> None:
    splits = {split: read_pairs([pairs_file], split) for split in ("train", "dev", "test")}
    assert sum(map(len, splits.values())) == len(articles())
    assert len(splits["train"]) > len(articles()) * 0.6
    for split, pairs in splits.items():
        assert {split_of(pair.title) for pair in pairs} == {split}
    assert NUM_BUCKETS == 10
    twice = tmp_path / "twice.jsonl"
    body = "시는 새 버스를 늘린다고 밝혔다. " * 10
    rows = [{"title": "제목 하나", "text": f"제목 하나\n{body}"}, {"title": "제목 둘", "text": body}]
    rows += [{"title": "제목 하나", "text": "다른 글" * 80}, {"title": "짧은 글", "text": "짧다."}]
    twice.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert read_pairs([twice], split_of("제목 하나")) == [Pair(body.strip(), "제목 하나")]
    other = next(split for split in ("train", "dev", "test") if split != split_of("제목 하나"))
    with fails(DataError, twice, "no pairs"):
        read_pairs([twice], other)


def test_a_bad_record_costs_itself_alone_and_a_text_file_is_one_article(
    pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(pairs_file.read_text(encoding="utf-8") + '{"title": "끊긴 줄\n', encoding="utf-8")
    assert read_pairs([damaged], "train") == read_pairs([pairs_file], "train")
    assert f"{damaged}: 1 bad records left out" in capsys.readouterr().err
    text = tmp_path / "article.txt"
    text.write_text("시는 새 버스를 늘린다고 밝혔다.\n\n주민들은 반겼다. 시장은 고맙다고 말했다.\n", encoding="utf-8")
    assert main(["write", str(text)]) == 0
    written = capsys.readouterr().out
    assert written.split("\n")[-3:] == ["시는 새 버스를 늘린다고 밝혔다.", "", ""]
    articles = tmp_path / "articles.jsonl"
    lines = [{"text": ["목록"]}, {"text": text.read_text(encoding="utf-8")}, {"text": ""}]
    articles.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    assert main(["write", str(articles)]) == 1
    printed = capsys.readouterr()
    assert printed.out == written
    assert [line.split(":")[1] for line in printed.err.splitlines()] == ["1", "3"]


def test_an_article_may_come_from_the_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decomposed = unicodedata.normalize("NFD", "시는 새 버스를 늘린다고 밝혔다.")
    monkeypatch.setattr("sys.stdin", io.StringIO(decomposed))
    assert main(["write", "-", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["headlines"][-1]["text"]) == ("-:1", "시는 새 버스를 늘린다고 밝혔다.")


def test_the_loss_is_that_of_the_titles(models: dict[str, Path]) -> None:
    pairs = [Pair("시는 내년에 새 버스 을 연다고 밝혔다", "새 버스"), Pair("주민들은", "큰 버스 문 연다")]
    for kind in ("bart", "hybrid"):
        network = HeadlineNetwork.load(models[kind], 8)
        batch = network.training_batch(pairs)
        titles = [[*network.tokenizer(pair.title, add_special_tokens=False)["input_ids"], 3] for pair in pairs]
        found = [row[row != IGNORED].tolist() for row in batch["labels"]]
        assert found == titles, kind
        if kind == "hybrid":
            assert batch["labels"].shape == batch["input_ids"].shape
            for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
                assert ids[labels != IGNORED].tolist() == labels[labels != IGNORED].tolist()
            network.model.eval()
            scores, wanted = network.title_scores(pairs)
            every = network.model(**{name: batch[name] for name in ("input_ids", "attention_mask")}).logits
            is_title = batch["labels"] != IGNORED
            assert wanted[wanted != IGNORED].tolist() == batch["labels"][is_title].tolist()
            assert scores.shape[1] < batch["input_ids"].shape[1] - 1  # not those of the body
            before = is_title.roll(-1, 1)  # a token is predicted at the one before it
            torch.testing.assert_close(scores[wanted != IGNORED], every[before])
        else:
            assert batch["decoder_input_ids"][:, 0].tolist() == [2, 2]
    long = Pair("주민들은 " * 500, "버스 " * 100)
    network = HeadlineNetwork.load(models["hybrid"], 8)
    batch = network.training_batch([long])
    assert len(batch["input_ids"][0]) == 64
    kept = network.tokenizer.decode(batch["labels"][0][batch["labels"][0] != IGNORED])
    assert kept == " ".join(["버스"] * 7 + ["[SEP]"])  # a long title is cut, and still ends


def test_a_trained_network_writes_titles(
    models: dict[str, Path], pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"epochs": 10, "peak_lr": 5e-3, "batch_size": 8, "max_title": 8, "label_smoothing": 0}
    for kind in ("bart", "hybrid"):
        out = tmp_path / kind
        facts = train_headlines([pairs_file], models[kind], out, settings)
        assert facts["losses"][-1] < 0.5 * facts["losses"][0], kind
        arguments = [str(pairs_file), "--model", str(out), "--split", "dev", "--beams", "2", "--limit", "4"]
        capsys.readouterr()
        assert main(["evaluate", *arguments]) == 0
        scores = json.loads(capsys.readouterr().out)
        assert scores["rouge_l"]["written"] > scores["rouge_l"]["extractive"], kind
        assert scores["num_invented"] == 0
    assert isinstance(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "bart"), BartForConditionalGeneration)
    assert "pairs of title and body" in (tmp_path / "bart" / "README.md").read_text(encoding="utf-8")
    some = tmp_path / "some.jsonl"
    some.write_text("".join(pairs_file.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
    options = ("--count", "1", "--beams", "2", "--json")
    assert main(["write", str(some), "--model", str(tmp_path / "bart"), *options]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert not lines[0]["headlines"][0]["is_extractive"]
    assert lines[0]["headlines"][-1]["is_extractive"]


def test_a_finished_folder_is_left_as_it_is(
    models: dict[str, Path], pairs_file: Path, tmp_path: Path, fails: Fails
) -> None:
    settings = {"epochs": "1", "batch_size": "64", "max_title": "8"}
    facts = train_headlines([pairs_file], models["bart"], tmp_path, settings)
    written = (tmp_path / "model.safetensors").stat().st_mtime_ns
    assert train_headlines([pairs_file], models["bart"], tmp_path, settings) == facts
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == written
    with fails(UsageError, "--out", str(tmp_path), "another folder"):
        train_headlines([pairs_file], models["bart"], tmp_path, settings | {"seed": 1})


def test_what_cannot_write_is_refused(
    models: dict[str, Path], pairs_file: Path, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    with subtests.test(case="encoder"), fails(CheckpointError, models["bert"], "BertModel", "bart"):
        HeadlineNetwork.load(models["bert"], 8)
    with subtests.test(case="short"), fails(CheckpointError, models["hybrid"] / "decoder", "64 positions", "40"):
        HeadlineNetwork.load(models["hybrid"], 40)
    with subtests.test(case="untrained"), fails(CheckpointError, models["bart"], "not a headline model"):
        HeadlineWriter.load(models["bart"])
    with subtests.test(case="setting"), fails(RecipeError, "--set", "epoch", "'epochs'"):
        train_headlines([pairs_file], models["bart"], tmp_path, {"epoch": 3})
    with subtests.test(case="no folder"), fails(UsageError, "--out", "missing for train"):
        main(["train", "--model", str(models["bart"]), str(pairs_file)])
    with subtests.test(case="two models"), fails(UsageError, "--encoder", "--model", "leave one"):
        main(["train", str(pairs_file), "--model", "a", "--encoder", "b", "--out", str(tmp_path)])
