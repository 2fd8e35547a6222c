"""A day of invented news whose stories are known."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from apps.stories.articles import Article

EVENTS = (
    ("벼리시", "야간 어린이 진료소", "14곳", "사회"),
    ("너울전자", "접이식 투명 휴대전화", "38만원", "경제"),
    ("다솔군 의회", "지방채 발행 조례안", "304억", "정치"),
    ("서율대 연구팀", "바닷물 수소 촉매", "92%", "과학"),
    ("청람 유나이티드", "결승골 주장 한결", "3대1", "스포츠"),
    ("물안군 농가", "때 이른 우박 피해", "217헥타르", "사회"),
    ("도울은행", "주택 담보 대출 금리", "4.25%", "경제"),
    ("윤슬극단", "창작 뮤지컬 달무리", "120회", "문화"),
    ("감나무 영화제", "다큐멘터리 부문 대상", "7편", "문화"),
    ("로스마 정부", "쌍둥이 화물선 나포", "26명", "국제"),
)
PATTERNS = (
    "{who}, {what} {number} 발표",
    "{who} {what} {number}…오늘 발표",
    "“{what} {number}” {who} 밝혀",
    "[속보] {who}, {what} {number}",
    "{what} {number}, {who} 공식 확인",
    "{who} {what} {number} 전망 (종합)",
)
LONELY = (
    "밤새 첫눈 소복이 쌓인 고갯길",
    "오징어 어획량 곤두박질",
    "골목 서점 마지막 영업일 풍경",
    "[포토] 두루미 떼의 비행",
    "중고 피아노 값은 왜 올랐나",
    "지하철 막차 연장 검토",
    "벌집 제거 출동 잦아져",
    "폐교에 들어선 천문대",
    "맨홀 뚜껑 도난 잇따라",
    "수능 앞둔 떡집의 하루",
    "은행잎 수거 앞당긴 구청",
    "공중전화 부스의 변신",
)


@dataclass(frozen=True)
class News:
    """Articles and the event of each, −1 for none."""

    articles: tuple[Article, ...]
    events: NDArray[np.int64]


@pytest.fixture(scope="session")
def news() -> News:
    """Return ten events in six wordings each, and twelve titles that stand alone."""
    articles, events = [], []
    for event, (who, what, number, category) in enumerate(EVENTS):
        for telling, pattern in enumerate(PATTERNS):
            title = pattern.format(who=who, what=what, number=number)
            date = f"2021-06-01T{6 + telling + event % 3:02d}:30"
            publisher = f"물빛{'일보' if telling % 2 else '통신'}"
            articles.append(Article(title, f"a{event}-{telling}", "", date, category, publisher))
            events.append(event)
    for position, title in enumerate(LONELY):
        articles.append(Article(title, f"b{position}", "", "2021-06-01T12:00", "사회", "물빛신문"))
        events.append(-1)
    return News(tuple(articles), np.array(events))


class HashedWords:
    """An embedder without a model: a vector for each word, drawn by its hash, and their sum."""

    sha256 = "hashed-words-" + "0" * 51

    def __init__(self, dimension: int = 32) -> None:
        self.dimension = dimension
        self.num_texts = 0
        """Texts that it was asked for, ever."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.num_texts += len(texts)
        rows = [sum((self._vector(word) for word in text.split()), np.zeros(self.dimension)) for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), self.dimension)

    def _vector(self, word: str) -> NDArray[np.float64]:
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest())
        return np.random.default_rng(seed).standard_normal(self.dimension)


@pytest.fixture(scope="session")
def sentence_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sentence-transformers folder: a BERT of one layer with random weights, and the mean over its tokens."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    root = tmp_path_factory.mktemp("embedder")
    letters = sorted({letter for event in EVENTS for letter in "".join(event)} | set("발표속보밝혀공식확인전망오늘"))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (root / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    BertTokenizer(str(root / "vocab.txt"), do_lower_case=False).save_pretrained(root / "encoder")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(pieces), **sizes)).save_pretrained(root / "encoder")
    modules = [Transformer(str(root / "encoder"), max_seq_length=64), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(root / "sbert"), create_model_card=False)
    return root / "sbert"


@pytest.fixture
def words() -> HashedWords:
    """Return an embedder that needs no model."""
    return HashedWords()
