"""Headlines by deletion: units, the best subset, the targets of training, and what a trained folder writes."""

import itertools
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from corpora.documents import read_documents
from corpora.foundation.arrays import write_arrays
from corpora.foundation.errors import CheckpointError, DataError, UsageError
from corpora.foundation.files import write_signed
from downstream.headline import headline, main
from downstream.headlines.compression import (
    EDITORS_LENGTH,
    FLUENCY,
    LONGEST,
    SHORTEST,
    WEIGHTS_FILE,
    Compressor,
    subsets,
)
from downstream.headlines.compression_training import on_common_subsequence, train_compression
from downstream.headlines.evaluation import evaluate_headlines
from downstream.headlines.pairs import read_pairs
from downstream.headlines.settings import SETTINGS_FILE, read_facts
from downstream.headlines.transitions import Floats
from downstream.headlines.units import Unit, headline_of, units_of
from downstream.headlines.writer import HeadlineWriter, bundled_writer

Fails = Callable[..., AbstractContextManager[None]]
SAMPLE = Path("corpora/sample/news.jsonl")
THINGS = ("버스", "도서관", "시장", "공원", "학교", "병원", "체육관", "미술관", "수영장", "박물관")
CITIES = ("강릉시", "속초시", "춘천시", "원주시", "동해시", "삼척시", "태백시", "여수시")


@pytest.fixture(scope="module")
def compressor() -> Compressor:
    return Compressor.load()


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return articles whose titles are the city, the thing and what happens to it."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rest = "주민들은 오래 기다린 일이라며 반겼다. 관계자는 앞으로도 살피겠다고 말했다. " * 5
    articles = [
        {
            "title": f"{city}, {thing} 개장",
            "text": f"{city}는 지난 3일 오전 새로 지은 {thing}을 개장했다고 밝혔다. {rest}",
        }
        for city in CITIES
        for thing in THINGS
    ]
    path.write_text("".join(json.dumps(a, ensure_ascii=False) + "\n" for a in articles), encoding="utf-8")
    return path


def unit(size: int = 1, *, verb: bool = False, open_ended: bool = False, negated: bool = False, name: str = "") -> Unit:
    tags = ("VV" if verb else "NNG", *["NNG"] * (size - 1))
    tags = (*tags[:-1], "ETM") if open_ended else tags
    return Unit(name, name, ("a",) * size, tags, size, False, False, negated, False)


def test_what_means_something_else_apart_is_one_unit(subtests: pytest.Subtests) -> None:
    for sentence, expected in (
        ("버스 12 대를 늘린다", ["버스", "12 대를", "늘린다"]),
        ("예산 17억 2400만 원을 확보했다", ["예산", "17억 2400만 원을", "확보했다"]),
        ("요금을 올리지 않기로 했다", ["요금을", "올리지 않기로", "했다"]),
        ("문제가 없다", ["문제가 없다"]),
        ("사실이 아니다", ["사실이 아니다"]),
        ("표를 못 샀다", ["표를", "못 샀다"]),
        ("물가가 오를 것으로 보인다", ["물가가", "오를 것으로", "보인다"]),
        ("지난 3일 ‘새해 첫 걷기’를 열었다", ["지난 3일", "‘새해 첫 걷기’를", "열었다"]),
        ("여수시(시장 정기명)가 [자료] 밝혔다", ["여수시가", "밝혔다"]),
        ("버스를 늘린다고 3일 밝혔다", ["버스를", "늘린다고", "3일", "밝혔다"]),
        ("버스를 늘린다고 밝혔다.", ["버스를", "늘린다고"]),
        ("밝혔다.", ["밝혔다."]),
        ("", []),
    ):
        with subtests.test(sentence=sentence):
            assert [found.text for found in units_of(sentence)] == expected


def test_a_stem_is_what_a_headline_prints(subtests: pytest.Subtests) -> None:
    for eojeol, stem in (
        ("전라남도는", "전라남도"),
        ("워크숍’을", "워크숍’"),
        ("지원한다고", "지원"),
        ("안정적인", "안정적"),
        ("선정됐다.", "선정"),
        ("학생이다.", "학생"),
        ("29일까지", "29일까지"),
        ("지난해보다", "지난해보다"),
        ("늘린다고", "늘린다"),
        ("늘렸다.", "늘렸다."),
        ("지원하지 않는다", "지원하지 않는다"),
    ):
        with subtests.test(eojeol=eojeol):
            assert [found.stem for found in units_of(eojeol)] == [stem]


def test_headlines_are_set_as_newspapers_set_them() -> None:
    units = units_of("전라남도와 경상남도는 “남해안 축제를 함께 열겠다”고 3일 밝혔다.")
    everything = list(range(len(units)))
    assert headline_of(units, everything, [False] * len(units)).startswith("전라남도·경상남도, “남해안")
    assert headline_of(units, [0, 2], [False, False]) == "전라남도 “남해안 축제를 함께 열겠다”", (
        "nothing is joined across a gap"
    )
    long = units_of("그는 “봄 여름 가을 겨울 아침 점심 저녁 밤”이라고 했다.")
    assert "“" not in headline_of(long, [0, 1], [False, False]), "half of a quotation loses its mark"
    denied = units_of("시장은 요금을 올린다고 말했다.")
    assert headline_of(denied, [1, 2], [False, True]) == "요금 올린다"
    assert headline_of(denied, [1, 2, 3], [False, False, True]) == "요금 올린다고 말했다"
    assert headline_of(units, [], []) == ""


def test_the_subset_is_the_best_of_all(subtests: pytest.Subtests) -> None:
    for seed in range(25):
        draw = random.Random(seed)  # noqa: S311
        units = [
            unit(draw.randint(1, 3), verb=draw.random() < 0.3, open_ended=draw.random() < 0.3, name=str(k))
            for k in range(draw.randint(3, 10))
        ]
        if seed % 3 == 0:
            units[-1] = unit(2, negated=True, name="not")
        keeps = np.array([draw.random() for _ in units], np.float32)
        follows = np.array([[-3 * draw.random() for _ in range(len(units) + 2)] for _ in range(len(units) + 2)], "f4")
        sizes = [each.num_stem for each in units]

        def is_allowed(kept: tuple[int, ...], units: list[Unit] = units) -> bool:
            has_objects = all(not units[k].needs_previous or k == 0 or k - 1 in kept for k in kept)
            is_true = len(units) - 1 in kept or not units[-1].is_negated
            return bool(kept) and has_objects and is_true and units[kept[-1]].can_end

        def transitions(kept: Sequence[int], follows: Floats = follows) -> list[float]:
            return [float(follows[a, b]) for a, b in itertools.pairwise([0, *(k + 1 for k in kept), len(follows) - 1])]

        best: dict[int, float] = {}
        for kept in (k for n in range(len(units) + 1) for k in itertools.combinations(range(len(units)), n)):
            length = sum(sizes[k] for k in kept)
            if SHORTEST <= length <= LONGEST and is_allowed(kept):
                worth = sum(float(keeps[k]) * sizes[k] for k in kept) + sum(transitions(kept))
                best[length] = max(best.get(length, -math.inf), worth)
        found = subsets(units, keeps, follows)
        with subtests.test(seed=seed):
            assert len(found) == len(best)
            for each in found:
                length = sum(sizes[k] for k in each.kept)
                common = sum(float(keeps[k]) * sizes[k] for k in each.kept)
                assert is_allowed(tuple(each.kept))
                assert common + sum(transitions(each.kept)) == pytest.approx(best[length], abs=1e-5)
                assert each.expected_f1 == pytest.approx(2 * common / (length + EDITORS_LENGTH))
                fluency = np.mean(transitions(each.kept))
                assert each.worth == pytest.approx(each.expected_f1 + FLUENCY * fluency, abs=1e-6)


def test_nothing_is_kept_twice() -> None:
    units = [unit(2, name=name) for name in ("축제", "시청", "축제", "개막")]
    for each in subsets(units, np.full(4, 0.9, np.float32), np.zeros((6, 6), np.float32)):
        names = [units[k].stem for k in each.kept]
        assert len(names) == len(set(names))


def test_the_common_subsequence_is_the_heaviest() -> None:
    draw = random.Random(0)  # noqa: S311
    for _ in range(60):
        a, b = (["".join(draw.choices("abc", k=1)) for _ in range(draw.randint(0, 7))] for _ in range(2))
        weights = [draw.choice((0.2, 1.0)) for _ in a]
        subsequences = (k for n in range(len(a) + 1) for k in itertools.combinations(range(len(a)), n))
        heaviest = max(
            sum(weights[i] for i in kept) for kept in subsequences if _is_subsequence([a[i] for i in kept], b)
        )
        found = np.flatnonzero(on_common_subsequence(a, weights, b))
        assert _is_subsequence([a[i] for i in found], b)
        assert sum(weights[i] for i in found) == pytest.approx(heaviest)


def _is_subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(each in rest for each in part)


def test_every_word_is_one_of_the_article_in_its_order() -> None:
    for document in itertools.islice(read_documents(SAMPLE), 25):
        found = bundled_writer().write(document.text)
        assert found[-1].is_extractive
        assert len(found) > 1, document.text
        whole = re.sub(r"[^\w]", "", re.sub(r"\([^()]*\)", "", document.text))
        for each in found[:-1]:
            words = [re.sub(r"[^\w]", "", word) for word in re.split(r"[ ·]", each.text)]
            assert _is_subsequence(list("".join(words)), list(whole)), each.text
            assert all(word in whole for word in words), each.text
            assert 0 < each.score <= 1
        assert len({each.text for each in found}) == len(found)


def test_a_denial_stays_one(compressor: Compressor) -> None:
    for text in (
        "강릉시는 시내버스 요금을 올린다는 소문이 사실이 아니라고 밝혔다.",
        "정부는 올해 전기 요금을 올리지 않기로 했다.",
        "교육청은 내년에 학교를 없애지 않는다.",
    ):
        for found in compressor.compress(text, 5):
            assert re.search("아니|않", found.text), found.text


def test_any_text_is_read(compressor: Compressor) -> None:
    draw = random.Random(1)  # noqa: S311
    alphabet = [
        "가",
        "힣",
        "ㄱ",
        "\u1100",
        "\ud800",
        "\0",
        "“",
        "(",
        "]",
        "□",
        "🙂",
        "́",
        " ",
        "\n",
        ".",
        "7",
        "만",
        "원을",
        "않",
    ]
    texts = ["", " ", "(", "강릉" * 50_000, "가 " * 20_000, "(" * 5_000, "“가 나” " * 3_000]
    texts += ["".join(draw.choices(alphabet, k=60)) for _ in range(150)]
    for text in texts:
        for found in compressor.compress(text, 3):
            assert found.text.strip()
            assert 0 < found.expected_f1 <= 1


def test_a_trained_folder_writes_what_its_titles_are_like(
    pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    out = tmp_path / "model"
    train = ["train", str(pairs_file), "--out", str(out), "--set", "epochs=60", "--set", "batch_size=64"]
    assert main(train) == 0
    losses = json.loads(capsys.readouterr().out)["losses"]
    assert losses[-1] < losses[0] / 2
    written = (out / WEIGHTS_FILE).read_bytes()
    assert main(train) == 0, "a finished folder is left as it is"
    assert (out / WEIGHTS_FILE).read_bytes() == written
    with fails(UsageError, "--out", str(out), "another folder"):
        main([*train, "--set", "seed=1"])
    capsys.readouterr()
    assert main(["evaluate", str(pairs_file), "--model", str(out), "--split", "dev"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["rouge_l"]["written"] > max(0.8, scores["rouge_l"]["beginning"], scores["rouge_l"]["extractive"])
    assert scores["num_invented"] == 0
    article = f"부산시는 지난 9일 저녁 새로 지은 도서관을 개장했다고 밝혔다. {'시민들은 반겼다. ' * 9}"
    text = headline(article, model=out)[0].text
    assert text.startswith("부산시, "), text
    assert text.endswith("도서관 개장"), text
    assert "9일" not in text
    assert "language: ko" in (out / "README.md").read_text(encoding="utf-8")


def test_training_is_the_same_twice(pairs_file: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        train_compression([pairs_file], tmp_path / name, overrides={"epochs": "2"})
    assert (tmp_path / "a" / WEIGHTS_FILE).read_bytes() == (tmp_path / "b" / WEIGHTS_FILE).read_bytes()


def test_what_cannot_be_used_is_refused(
    pairs_file: Path, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    out = tmp_path / "model"
    train_compression([pairs_file], out, overrides={"epochs": "1"})
    with subtests.test(case="changed weights"):
        changed = bytearray((out / WEIGHTS_FILE).read_bytes())
        changed[-1] ^= 1
        (out / WEIGHTS_FILE).write_bytes(changed)
        with fails(CheckpointError, out / WEIGHTS_FILE, "digest", "again"):
            HeadlineWriter.load(out)
    with subtests.test(case="weights of another release"):
        write_arrays(out / WEIGHTS_FILE, {"hidden": np.zeros((2, 2), np.float16)})
        with fails(CheckpointError, out / WEIGHTS_FILE, "another release", "train it again"):
            HeadlineWriter.load(out)
    with subtests.test(case="another encoder"):
        write_signed(out / SETTINGS_FILE, read_facts(out) | {"encoder_sha256": "0"})
        with fails(CheckpointError, out, "another encoder", "train it again"):
            HeadlineWriter.load(out)
    with subtests.test(case="no title"):
        path = tmp_path / "untitled.jsonl"
        path.write_text('{"text": "시민들은 오래 기다린 버스를 반겼다."}\n', encoding="utf-8")
        with fails(DataError, path, "no pairs", "other files"):
            train_compression([path], tmp_path / "none")
    with subtests.test(case="titles of other articles"):
        article = {
            "title": "우승 소식",
            "text": f"강릉시는 지난 3일 새로 지은 도서관을 개장했다. {'주민들은 반겼다. ' * 20}",
        }
        path = tmp_path / "others.jsonl"
        path.write_text(json.dumps(article, ensure_ascii=False) + "\n", encoding="utf-8")
        with fails(DataError, "the pairs", "3 words", "editor's title"):
            train_compression([path], tmp_path / "none")


@pytest.mark.real_data
def test_shortened_sentences_are_closer_to_editors_headlines_than_sentences(real_data: Path) -> None:
    pairs = read_pairs([real_data / "corpus" / "press_releases_municipal.jsonl.gz"], "test")[:60]
    scores = evaluate_headlines(bundled_writer(), pairs, num_beams=4).as_json()
    assert scores["difference_ci95"][0] > 0
    assert scores["rouge_l"]["written"] > scores["rouge_l"]["beginning"] + 0.05
    assert scores["num_invented"] == 0
