"""What opens a model folder: each is given the attacks by folders."""

from pathlib import Path

from apps.serving.services import Settings, load_services
from apps.summarize import main as summarize
from corpora.foundation.files import SAMPLE_ROOT
from downstream.answer import Reader
from downstream.classify import Classifier
from downstream.distill import main as distill
from downstream.embed import Embedder
from downstream.embed import main as embed_command
from downstream.encoders.__main__ import main as convert
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.fill_mask import MaskFiller
from downstream.finetune import main as finetune
from downstream.headline import main as headline
from downstream.moderate.model import Moderator
from downstream.publish import main as publish
from eval.run_all import main as leaderboard
from pretraining.evaluate import main as evaluate

NEWS = str(SAMPLE_ROOT / "news.jsonl")


def load(path: Path, _out: Path) -> None:
    load_model(path, load_tokenizer(path), "AutoModelForSequenceClassification", {"num_labels": 2})


def classify(path: Path, _out: Path) -> None:
    Classifier.load(path, "torch").probabilities(["배우들 연기가 좋았다"])


def embed(path: Path, _out: Path) -> None:
    Embedder.load(path)


def to_plain(path: Path, out: Path) -> int:
    return convert([str(path), "--out", str(out / "converted")])


def compare(path: Path, out: Path) -> int:
    return leaderboard(["--validate", "--models", f"x={path}", "--tasks", "nsmc-sample", "--out", str(out)])


def perplexity(path: Path, _out: Path) -> int:
    return evaluate([str(path), "--corpus", NEWS])


def trained(path: Path, out: Path) -> int:
    return finetune(["nsmc-sample", "--model", str(path), "--out", str(out)])


def distilled(path: Path, out: Path) -> int:
    return distill([str(path), "--out", str(out)])


def published(path: Path, out: Path) -> int:
    return publish([str(path), "--repo", "a/b", "--out", str(out)])


def encoded(path: Path, out: Path) -> int:
    return embed_command(["encode", NEWS, "--model", str(path), "--out", str(out / "a.npy")])


def summarized(path: Path, _out: Path) -> int:
    return summarize([NEWS, "--model", str(path)])


def headlined(path: Path, _out: Path) -> int:
    return headline(["write", NEWS, "--model", str(path)])


def filled(path: Path, _out: Path) -> None:
    MaskFiller.load(path)


def answered(path: Path, _out: Path) -> None:
    Reader.load(path)


def moderated(path: Path, _out: Path) -> None:
    Moderator.load(path)


def served(path: Path, _out: Path) -> None:
    load_services(Settings(tools={"classify": str(path)}))


EVERYWHERE = (
    load,
    classify,
    embed,
    to_plain,
    compare,
    perplexity,
    trained,
    distilled,
    published,
    encoded,
    summarized,
    headlined,
    filled,
    answered,
    moderated,
    served,
)
"""Everything that opens a model folder."""
