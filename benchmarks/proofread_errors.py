"""Errors put into clean sentences by rule, as people make them: blanks, look-alike endings, particles, keys.

Each error is a change of a sentence with its kind. The mix is `RATES`: of a hundred eojeol, how many get an error of
each kind. Blanks are the most frequent error of Korean writers, then endings that sound alike, then slips of the key.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from downstream.writing.hangul import FINALS, LEADS, VOWELS, compose, final_of, is_syllable, parts

RATES = {"blank_missing": 3.0, "blank_added": 0.7, "sound": 1.5, "particle": 0.4, "key": 0.6}
"""Errors for a hundred eojeol."""
SOUNDS: Sequence[tuple[str, str]] = (
    (r"돼(?=요|서|야|도|있)", "되"),
    (r"됐(?=다|어|습|는|지|고|던|을)", "됬"),
    (r"되(?=고|는|지|면|기|며|다)", "돼"),
    (r"(?<=지 )않(?=는|고|은|았|다|습|아|게|을|기)", "안"),
    (r"(?<![가-힣])안 (?=하|해|했|되|돼|된|될)", "않 "),
    (r"(?<=[가-힣])로서(?=[ ,])", "로써"),
    (r"(?<=음으|함으|임으|됨으)로써", "로서"),
    (r"든지(?=[ ,.]|$)", "던지"),
    (r"는데(?=[ ,.])", "는대"),
    (r"([가-힣])게(?=요)", r"\1께"),
    (r"이에요", "이예요"),
    (r"예요", "에요"),
    (r"며칠", "몇일"),
    (r"오랜만", "오랫만"),
    (r"금세", "금새"),
    (r"역할", "역활"),
    (r"희한", "희안"),
    (r"왠지", "웬지"),
    (r"웬만", "왠만"),
    (r"어떻게", "어떻해"),
    (r"어떡해", "어떻해"),
    (r"설렘", "설레임"),
    (r"바람(?=이다|입니다)", "바램"),
    (r"굳이(?= )", "구지"),
    (r"깨끗이", "깨끗히"),
    (r"일일이", "일일히"),
    (r"틈틈이", "틈틈히"),
    (r"솔직히", "솔직이"),
    (r"꼼꼼히", "꼼꼼이"),
    (r"대로(?=[ ,.])", "데로"),
    (r"대신", "데신"),
    (r"도대체", "도데체"),
    (r"폭발", "폭팔"),
    (r"띄어쓰기", "띄워쓰기"),
    (r"드러나", "들어나"),
    (r"드러났", "들어났"),
    (r"받아들이", "받아드리"),
    (r"치르", "치루"),
    (r"바뀌었", "바꼈"),
    (r"뒤처지", "뒤쳐지"),
    (r"메시지", "메세지"),
    (r"콘텐츠", "컨텐츠"),
    (r"리더십", "리더쉽"),
    (r"워크숍", "워크샵"),
    (r"어이없", "어의없"),
    (r"얘기", "예기"),
    (r"계속", "게속"),
    (r"계획", "게획"),
    (r"제대로", "재대로"),
    (r"훼손", "회손"),
    (r"눈에 띄", "눈에 띠"),
    (r"있습니다", "있읍니다"),
    (r"하려(?=고|면|는)", "할려"),
    (r"것이에요", "거에요"),
    (r"았(?=다|던|는)", "앗"),
    (r"었(?=다|던|는)", "엇"),
    (r"했(?=다|던|는)", "햇"),
    (r"있(?=다|는|고|어)", "잇"),
    (r"문제 제기", "문제 재기"),
    (r"부딪혔", "부딪쳤"),
    (r"율(?=이|을|은)", "률"),
    (r"생각건대", "생각컨데"),
    (r"낫다", "낳다"),
    (r"맞히", "맞추"),
    (r"어차피", "어짜피"),
    (r"무난", "문안"),
    (r"거야", "꺼야"),
    (r"할 거", "할꺼"),
)
"""What is right, and what is written for it because it sounds alike."""
PARTICLES = {"을": "를", "를": "을", "은": "는", "는": "은", "이": "가", "가": "이", "과": "와", "와": "과"}
KEYS = {
    "ㅂ": "ㅈㅁ",
    "ㅈ": "ㅂㄷㄴ",
    "ㄷ": "ㅈㄱㅇ",
    "ㄱ": "ㄷㅅㄹ",
    "ㅅ": "ㄱㅛㅎ",
    "ㅁ": "ㅂㄴㅋ",
    "ㄴ": "ㅁㅇㅈㅌ",
    "ㅇ": "ㄴㄹㄷㅊ",
    "ㄹ": "ㅇㅎㄱㅍ",
    "ㅎ": "ㄹㅅ",
    "ㅋ": "ㅁㅌ",
    "ㅌ": "ㅋㅊㄴ",
    "ㅊ": "ㅌㅍㅇ",
    "ㅍ": "ㅊㄹ",
    "ㅛ": "ㅕㅗ",
    "ㅕ": "ㅛㅑㅓ",
    "ㅑ": "ㅕㅐㅏ",
    "ㅐ": "ㅑㅔㅣ",
    "ㅔ": "ㅐ",
    "ㅗ": "ㅓㅛㅠ",
    "ㅓ": "ㅗㅏㅕㅜ",
    "ㅏ": "ㅓㅣㅑㅡ",
    "ㅣ": "ㅏㅐ",
    "ㅠ": "ㅜㅗ",
    "ㅜ": "ㅠㅡㅓ",
    "ㅡ": "ㅜㅏ",
}
"""Neighbours on the Korean keyboard."""


@dataclass(frozen=True)
class Planted:
    """A sentence with errors: each is `text[start:end]`, which should read `right`."""

    text: str
    errors: tuple[tuple[int, int, str, str], ...]
    """Start, end, right text, kind; in order, and whole eojeol."""


def plant(sentence: str, rng: random.Random, scale: float = 1.0) -> Planted:
    """Put errors into a clean sentence.

    Args:
        sentence: of one line.
        rng: source of randomness.
        scale: by which `RATES` are multiplied.
    """
    words = sentence.split(" ")
    pieces: list[tuple[str, str, str]] = []  # written, right, kind
    k = 0
    while k < len(words):
        kind = _draw(rng, scale)
        if kind == "blank_missing" and k + 1 < len(words) and _joins(words[k], words[k + 1]):
            pieces.append((words[k] + words[k + 1], f"{words[k]} {words[k + 1]}", kind))
            k += 2
            continue
        wrong = MAKERS[kind](words[k], rng) if kind in MAKERS else None
        if kind == "sound" and wrong is None:
            wrong = None
        pieces.append((wrong, words[k], kind) if wrong and wrong != words[k] else (words[k], words[k], ""))
        k += 1
    text, errors = "", []
    for written, right, kind in pieces:
        text += " " if text else ""
        if kind:
            errors.append((len(text), len(text) + len(written), right, kind))
        text += written
    return Planted(text, tuple(errors))


def _draw(rng: random.Random, scale: float) -> str:
    value = rng.random() * 100 / scale
    for kind, rate in RATES.items():
        # Few words have a sound-alike, so one is looked for in all of them.
        rate = rate * (12 if kind == "sound" else 3 if kind == "particle" else 1)
        if value < rate:
            return kind
        value -= rate
    return ""


def _joins(left: str, right: str) -> bool:
    return is_syllable(left[-1:]) and is_syllable(right[:1])


def _split(word: str, rng: random.Random) -> str | None:
    """Set a blank before a particle or an ending, or in the middle of a word."""
    if len(word) < 4 or not all(map(is_syllable, word)):
        return None
    at = len(word) - rng.choice((1, 2))
    return f"{word[:at]} {word[at:]}"


def _sound(word: str, rng: random.Random) -> str | None:
    fitting = [(right, wrong) for right, wrong in SOUNDS if re.search(right, word)]
    if not fitting:
        return None
    right, wrong = rng.choice(fitting)
    return re.sub(right, wrong, word, count=1)


def _particle(word: str, _rng: random.Random) -> str | None:
    core = word.rstrip(".,")
    if len(core) < 3 or not is_syllable(core[-2]):
        return None
    if core[-1] not in PARTICLES or (final_of(core[-2]) > 0) != (core[-1] in "을은이과"):
        return None
    return core[:-1] + PARTICLES[core[-1]] + word[len(core) :]


def _key(word: str, rng: random.Random) -> str | None:
    """Hit a neighbouring key for one letter."""
    places = [k for k, letter in enumerate(word) if is_syllable(letter)]
    if len(places) < 2:
        return None
    at = rng.choice(places)
    numbers = list(parts(word[at]))
    which = rng.choice((0, 1, 2) if numbers[2] else (0, 1))
    alphabet = (LEADS, VOWELS, FINALS)[which]
    near = [alphabet.index(jamo) for jamo in KEYS.get(alphabet[numbers[which]], "") if jamo in alphabet]
    if not near:
        return None
    numbers[which] = rng.choice(near)
    return word[:at] + compose(*numbers) + word[at + 1 :]


MAKERS: dict[str, Callable[[str, random.Random], str | None]] = {
    "blank_added": _split,
    "sound": _sound,
    "particle": _particle,
    "key": _key,
}
