"""BertSumExt: windows, merging, the model's shapes and loss, training that resumes, a folder that loads anywhere."""

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from corpora.foundation.errors import CheckpointError, RecipeError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.encoders.tokenizers import load_tokenizer
from downstream.extractive import main
from downstream.summaries.articles import Article, join_sentences
from downstream.summaries.labelled import read_labelled
from downstream.summaries.scorer import (
    HeadConfig,
    SentenceScorer,
    build_head,
    build_model,
    collate,
    load_encoder,
    make_windows,
    merge_windows,
    sinusoids,
)
from downstream.summaries.scorer_training import ExtractiveConfig, split_off_held_out, train
from downstream.summarize import Summarizer

HEAD = {"num_layers": 1, "num_heads": 2, "feed_forward_size": 32, "dropout": 0.1}
CONFIG = ExtractiveConfig(
    epochs=1, batch_size=8, peak_lr=1e-3, max_length=128, checkpoint_steps=2, head=HeadConfig(**HEAD)
)
Fails = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="module")
def encoder(standins: dict[str, Path]) -> Path:
    return standins["klue-bert"]


@pytest.fixture(scope="module")
def trained(encoder: Path, sample: list[Article], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bertsum")
    train(sample[:40], encoder, out=out, config=CONFIG)
    return out


# ---- windows ----


def test_every_sentence_is_in_a_window_whole_and_in_order(encoder: Path) -> None:
    tokenizer = load_tokenizer(encoder)
    for num, max_length in itertools.product((1, 2, 7, 60), (16, 32, 100, 512)):
        case = f"{num} sentences, {max_length} tokens"
        sentences = [f"{k}번째 문장은 다리 " + "이야기다 " * (k % 9) for k in range(num)]
        windows = make_windows(sentences, tokenizer, max_length)
        assert sorted({k for window in windows for k in window.sentences}) == list(range(num)), case
        for before, after in itertools.pairwise(windows):
            assert before.first < after.first <= before.sentences.stop, case
            assert before.sentences.stop < after.sentences.stop, case
        encoded = tokenizer(sentences, add_special_tokens=False, truncation=True, max_length=max_length - 2)[
            "input_ids"
        ]
        for window in windows:
            assert len(window.input_ids) == len(window.token_type_ids) <= max_length, case
            borders = [*window.cls_positions, len(window.input_ids)]
            for k, (start, end) in enumerate(itertools.pairwise(borders), start=window.first):
                expected = [tokenizer.cls_token_id, *encoded[k], tokenizer.sep_token_id]
                assert window.input_ids[start:end] == expected, case
                assert set(window.token_type_ids[start:end]) == {k % 2}, case


def test_windows_overlap_by_half_where_sentences_are_short(encoder: Path) -> None:
    windows = make_windows(["다리"] * 40, load_tokenizer(encoder), 32)
    shared = [len(set(a.sentences) & set(b.sentences)) / len(a.cls_positions) for a, b in itertools.pairwise(windows)]
    assert all(0.4 <= share <= 0.6 for share in shared)


def test_an_article_that_fits_is_one_window_and_none_is_none(encoder: Path) -> None:
    tokenizer = load_tokenizer(encoder)
    assert [window.sentences for window in make_windows(["가.", "나."], tokenizer, 512)] == [range(2)]
    assert make_windows([], tokenizer, 512) == []


def test_a_lone_surrogate_and_a_sentence_longer_than_a_window_are_read(encoder: Path) -> None:
    windows = make_windows(["\ud800다리", "다리 " * 500, ""], load_tokenizer(encoder), 64)
    assert sorted({k for window in windows for k in window.sentences}) == [0, 1, 2]


def test_scores_of_several_windows_are_averaged(encoder: Path) -> None:
    windows = make_windows(["다리"] * 6, load_tokenizer(encoder), 16)
    assert [list(window.sentences) for window in windows[:2]] == [[0, 1, 2, 3], [2, 3, 4, 5]]
    merged = merge_windows(6, windows, [np.array([1.0, 1, 1, 1]), np.array([3.0, 5, 7, 9])])
    assert merged.tolist() == [1, 1, 2, 3, 7, 9]


# ---- model ----


def test_positions_are_those_of_the_transformer_paper_and_unbounded() -> None:
    embedded = sinusoids(torch.tensor([[0, 1], [5000, 10_000]]), 4)
    assert embedded.shape == (2, 2, 4)
    assert embedded[0, 1].tolist() == pytest.approx([np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)], abs=1e-5)
    assert torch.isfinite(embedded).all()


def test_padding_changes_no_score_and_the_loss_is_the_mean_over_real_sentences(encoder: Path) -> None:
    torch.manual_seed(0)
    tokenizer = load_tokenizer(encoder)
    model = build_model(load_encoder(encoder, tokenizer), build_head(32, HeadConfig(**HEAD))).eval()
    windows = [make_windows(s, tokenizer, 128)[0] for s in (["다리.", "시민이 왔다."], ["새 다리가 열렸다."] * 4)]
    labels = [[1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    with torch.no_grad():
        alone = [model(**collate([window], tokenizer))["logits"][0] for window in windows]
        together = model(**collate(windows, tokenizer, labels))
    for row, single in zip(together["logits"], alone, strict=True):
        assert row[: len(single)].tolist() == pytest.approx(single.tolist(), abs=1e-5)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.cat(alone), torch.tensor([1.0, 0, 0, 1, 0, 0])
    )
    assert together["loss"].item() == pytest.approx(expected.item(), abs=1e-5)


def test_the_head_sees_the_position_in_the_article_and_the_other_sentences() -> None:
    torch.manual_seed(0)
    head = build_head(32, HeadConfig(**HEAD)).eval()
    vectors, there = torch.randn(1, 3, 32), torch.ones(1, 3, dtype=torch.bool)
    first, later = (head(vectors, torch.arange(3).unsqueeze(0) + start, there) for start in (0, 40))
    assert not torch.allclose(first, later)
    without = head(vectors, torch.arange(3).unsqueeze(0), torch.tensor([[True, True, False]]))
    assert not torch.allclose(first[:, :2], without[:, :2])


def test_heads_that_do_not_divide_the_hidden_size_are_refused(fails: Fails) -> None:
    with fails(RecipeError, "head", "num_heads=5"):
        build_head(32, HeadConfig(num_heads=5))


# ---- training ----


def lead_articles(num: int) -> list[Article]:
    """Return articles whose editor always takes the sentences with 다리."""
    generator = np.random.default_rng(0)
    articles = []
    for k in range(num):
        chosen = sorted(generator.choice(6, size=2, replace=False).tolist())
        text, sentences = join_sentences([["다리가 열렸다." if s in chosen else "날이 흐렸다." for s in range(6)]])
        articles.append(Article(text, sentences, id=str(k), group=str(k), extractive=tuple(chosen)))
    return articles


@pytest.mark.slow
def test_training_learns_a_simple_rule(encoder: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"epochs": 20, "held_out": 0.2, "peak_lr": 5e-3, "head_lr": 5e-3, "checkpoint_steps": 1000}
    )
    metrics = train(lead_articles(60), encoder, out=tmp_path / "m", config=config)
    assert metrics["precision"] > 0.95  # a third by chance
    assert 5 <= metrics["num_articles"] <= 20


def test_the_folder_is_a_plain_encoder_a_head_and_a_card(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors", "head.safetensors", "head.json", "README.md"} <= names
    assert "checkpoints" not in names
    assert AutoModel.from_pretrained(trained).config.hidden_size == 32
    assert (trained / "README.md").read_text(encoding="utf-8").startswith("---\nlanguage: ko")
    settings = json.loads((trained / "head.json").read_text(encoding="utf-8"))
    assert settings["recipe"]["num_articles"] == sum(1 for _ in articles_of_train(trained))


def articles_of_train(_: Path) -> Sequence[Article]:
    return [a for a in list(read_labelled(SAMPLE_ROOT / "news.jsonl"))[:40] if a.split == "train"]


def test_a_finished_folder_is_not_trained_again_and_another_run_refused(
    trained: Path, encoder: Path, sample: list[Article], fails: Fails
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in trained.iterdir()}
    train(sample[:40], encoder, out=trained, config=CONFIG)
    assert {path.name: path.stat().st_mtime_ns for path in trained.iterdir()} == before
    with fails(UsageError, trained, "another model"):
        train(sample[:40], encoder, out=trained, config=CONFIG, seed=1)


def test_an_interrupted_training_is_bit_identical_to_an_uninterrupted_one(
    trained: Path, encoder: Path, sample: list[Article], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Trainer

    step = Trainer.training_step
    taken = 0

    def killed(self: Trainer, *arguments: object) -> torch.Tensor:
        nonlocal taken
        taken += 1
        if taken == 4:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        train(sample[:40], encoder, out=tmp_path / "m", config=CONFIG)
    assert list((tmp_path / "m" / "checkpoints").rglob("trainer_state.json"))
    train(sample[:40], encoder, out=tmp_path / "m", config=CONFIG)
    assert taken < 4 + len(sample[:40])
    for name in ("model.safetensors", "head.safetensors"):
        assert (tmp_path / "m" / name).read_bytes() == (trained / name).read_bytes()


def test_articles_without_splits_are_divided_by_their_group_alone() -> None:
    articles = lead_articles(200)
    training, held_out = split_off_held_out(articles, 0.2)
    assert 20 < len(held_out) < 60
    assert {a.id for a in split_off_held_out(articles[::-1], 0.2)[1]} == {a.id for a in held_out}
    assert len(training) + len(held_out) == 200


def test_the_splits_of_the_sample_are_used(sample: list[Article]) -> None:
    training, held_out = split_off_held_out(sample, 0.5)
    assert ({a.split for a in training}, {a.split for a in held_out}) == ({"train"}, {"dev"})


# ---- use ----


def test_a_trained_folder_summarizes_articles_of_any_length(trained: Path) -> None:
    summarizer = Summarizer.load(trained, runtime="torch")
    article = " ".join(f"{k}번째 다리를 물빛시가 놓았다." for k in range(300))
    summary = summarizer.summarize(article, explain=True)
    assert len(summary.candidates) == 300
    assert len(summary.sentences) >= 1
    assert all(set(s.components) == {"scorer", "bias"} for s in summary.candidates)
    scores = SentenceScorer.load(trained, "torch").log_odds([s.text for s in summary.candidates])
    assert [s.components["scorer"] for s in summary.candidates] == pytest.approx(scores.tolist(), abs=1e-5)


def test_scores_do_not_depend_on_earlier_articles(trained: Path) -> None:
    scorer = SentenceScorer.load(trained, "torch")
    sentences = ["새 다리가 열렸다.", "시민이 모였다.", "날이 흐렸다."]
    alone = scorer.log_odds(sentences)
    scorer.log_odds(["전혀 다른 기사다."] * 50)
    assert scorer.log_odds(sentences).tolist() == alone.tolist()


def test_another_runtime_gives_nearly_the_same_scores(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sentences = [f"{k}번째 다리가 열렸다." for k in range(40)]
    scores = SentenceScorer.load(trained, "torch").log_odds(sentences)
    other = SentenceScorer.load(trained, "onnx-fp32").log_odds(sentences)
    assert other == pytest.approx(scores, abs=1e-3)


def test_a_damaged_head_is_named(trained: Path, tmp_path: Path, fails: Fails) -> None:
    for name in ("head.safetensors", "head.json"):
        for path in trained.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes()[: 40 if path.name == name else None])
        with fails(CheckpointError, tmp_path / name):
            SentenceScorer.load(tmp_path, "torch")


def test_the_command_trains_on_contest_data(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        json.dumps({"id": a.id, "article_original": a.texts, "extractive": list(a.extractive), "abstractive": ""})
        for a in lead_articles(12)
    ]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    settings = [f"--set=head.{key}={value}" for key, value in HEAD.items()]
    command = ["train", str(tmp_path / "data"), "--model", str(encoder), "--out", str(tmp_path / "m"), *settings]
    assert main([*command, "--set=epochs=1", "--set=held_out=0.3"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["num_articles"] > 0
