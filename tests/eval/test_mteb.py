"""mteb's own classes on local files: what is scored, with which figures, and what is left out."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from corpora.foundation.errors import UsageError
from downstream.embed import Embedder
from downstream.families.retrieval import RetrievalExample
from eval import mteb as command

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None, reason="pip install 'pressbert[eval-mteb]' to run this test"
)

PAIRS = [("비가 온다.", "비가 내린다.", 4.6), ("눈이 온다.", "해가 진다.", 0.3), ("그는 갔다.", "그가 갔다.", 4.9)]
PAIRS += [("시장이 열렸다.", "시장이 당선됐다.", 1.2), ("예산이 늘었다.", "예산을 늘렸다.", 3.8)]


@pytest.fixture
def root(write: Callable[[str, str], Path], tmp_path: Path) -> Path:
    """Return a data root with small files of three tasks."""
    sts = [
        {"guid": f"g{k}", "sentence1": a, "sentence2": b, "labels": {"label": s, "real-label": s, "binary-label": 0}}
        for k, (a, b, s) in enumerate(PAIRS)
    ]
    labels = ("entailment", "contradiction", "neutral", "contradiction", "entailment")
    nli = [
        {"guid": f"g{k}", "premise": a, "hypothesis": b, "gold_label": label}
        for k, ((a, b, _), label) in enumerate(zip(PAIRS, labels, strict=True))
    ]
    write("data/klue/klue-sts-v1.1/klue-sts-v1.1_dev.json", json.dumps(sts, ensure_ascii=False))
    write("data/klue/klue-nli-v1.1/klue-nli-v1.1_dev.json", json.dumps(nli, ensure_ascii=False))
    paws = "".join(f"{k}\t{a}\t{b}\t{k % 2}\n" for k, (a, b, _) in enumerate(PAIRS))
    write("data/paraphrase/pawsx_ko_dev.tsv", "id\tsentence1\tsentence2\tlabel\n" + paws)
    groups = "".join(f"0\t{k}\t{text} {n}번째로\n" for k, (text, _, _) in enumerate(PAIRS) for n in range(10))
    write("data/parakqc/paraKQC_v1.txt", groups)
    return tmp_path / "data"


def test_scores_are_mtebs_and_its_files_lie_beside_ours(
    root: Path, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(out / "cache"))
    code = command.main(["bundled", "--data", str(root), "--out", str(out)])
    printed = capsys.readouterr()
    rows = {row["task"]: row for row in map(json.loads, printed.out.splitlines())}
    assert code == 1
    assert list(rows) == ["KLUE-STS", "KLUE-NLI", "PawsXPairClassification", "ParaKQC"]
    assert "KorSTS: unavailable: kornlu/KorSTS/sts-test.tsv" in printed.err
    embedder = Embedder.load()
    one, two = (embedder.encode([pair[k] for pair in PAIRS]) for k in (0, 1))
    cosines = (one * two).sum(axis=1)
    spearman = scipy.stats.spearmanr(cosines, [score for _, _, score in PAIRS]).statistic
    assert rows["KLUE-STS"] | {"value": None} == {
        "task": "KLUE-STS",
        "split": "validation",
        "metric": "cosine_spearman",
        "value": None,
    }
    assert rows["KLUE-STS"]["value"] == pytest.approx(spearman, abs=1e-5)
    # The neutral pair is no example of mteb's task: entailed and contradicting ones remain.
    order = np.argsort(-cosines[[0, 1, 3, 4]])
    is_entailed = np.array([1, 0, 0, 1])[order]
    precision = np.cumsum(is_entailed) / np.arange(1, 5)
    assert rows["KLUE-NLI"]["value"] >= (precision * is_entailed).sum() / 2 - 1e-6  # the best of several similarities
    texts = [f"{text} {n}번째로" for text, _, _ in PAIRS for n in range(10)]
    similar = embedder.encode(texts) @ embedder.encode(texts).T
    np.fill_diagonal(similar, -np.inf)
    own = np.arange(50)[:, None] // 10 == np.arange(50)[None, :] // 10
    first = 1 + (similar > np.where(own, similar, -np.inf).max(axis=1, keepdims=True)).sum(axis=1)
    reciprocal = np.where(first <= 10, 1 / first, 0).mean()
    assert rows["ParaKQC"]["metric"] == "mrr_at_10"
    assert rows["ParaKQC"]["value"] == pytest.approx(reciprocal, abs=0.02)  # ties are broken otherwise
    files = {path.name for path in (out / "mteb").rglob("*.json")}
    assert {"KLUE-STS.json", "KLUE-NLI.json", "PawsXPairClassification.json", "ParaKQC.json"} <= files


def test_a_prompt_is_written_before_every_text(tiny_encoder: Path) -> None:
    embedder = Embedder.load(tiny_encoder)
    encoder = command.MtebEncoder(embedder, "tiny", "query: ")
    found = encoder.encode([{"text": ["비가 온다.", "눈"]}, {"text": ["해"]}], task_metadata=None)
    np.testing.assert_allclose(found, embedder.encode([f"query: {t}" for t in ("비가 온다.", "눈", "해")]), atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(found, found).diagonal(), np.ones(3), atol=1e-5)
    np.testing.assert_allclose(encoder.similarity_pairwise(found, found), np.ones(3), atol=1e-5)
    assert encoder.mteb_model_meta.name == "local/tiny"


def test_a_text_is_no_answer_to_itself() -> None:
    task = command.retrieval_task("Toy", [RetrievalExample(str(k), f"글 {k}", None, str(k // 2)) for k in range(4)])
    split = task.dataset["default"]["test"]
    assert split["relevant_docs"] == {"0": {"1": 1}, "1": {"0": 1}, "2": {"3": 1}, "3": {"2": 1}}
    assert task.ignore_identical_ids


def test_what_cannot_run_is_one_line(tiny_encoder: Path, root: Path) -> None:
    cases = [
        (["--tasks", "KLUE-STT"], "'KLUE-STT' has no local files; choose from: KLUE-NLI"),
        (["--benchmark", "MTEB(kor, v2)"], "HF_HUB_OFFLINE forbids downloads"),
        (["--benchmark", "MTEB(kor, v9)"], "is unknown to mteb"),
        (["--benchmark", "MTEB(kor, v2)", "--tasks", "KLUE-STS"], "it has tasks of its own"),
    ]
    for arguments, what in cases:
        with pytest.raises(UsageError) as caught:
            command.main([str(tiny_encoder), *arguments, "--data", str(root)])
        assert what in str(caught.value)
