"""The Korean keyboard: keys and syllables, neighbouring keys, and typing mistakes."""

import itertools
import re
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downstream.task import TextExample
from eval.measures.keyboard import (
    FINALS_OF_TWO_KEYS,
    MEDIALS_OF_TWO_KEYS,
    MISTAKES,
    NEIGHBOURS,
    compose_keys,
    mistypings,
    type_keys,
)
from eval.measures.noise import NOISES, apply

SYLLABLES = [chr(code) for code in range(0xAC00, 0xD7A4)]

hangul = st.text(st.sampled_from(SYLLABLES))
characters = st.one_of(
    st.sampled_from(SYLLABLES), st.sampled_from(" .!?ㅋㅠab12\n\t“”😀"), st.characters(codec="utf-8")
)
composed = st.text(characters, max_size=25).map(lambda text: unicodedata.normalize("NFC", text))
rates = st.floats(0, 1)


def noised(text: str, rate: float = 1.0, id_: str = "1") -> str:
    return apply(NOISES["jamo-typos"], TextExample(id_, text, None, "positive"), rate, 0).text


def keys(text: str) -> str:
    return "".join(type_keys(one) if "가" <= one <= "힣" else one for one in text)


def test_all_11172_syllables_are_typed_and_composed_again() -> None:
    assert len(SYLLABLES) == 11_172
    assert [compose_keys(type_keys(one)) for one in SYLLABLES] == SYLLABLES
    assert len({type_keys(one) for one in SYLLABLES}) == 11_172


def test_the_keys_of_a_syllable_are_the_jamo_that_unicode_decomposes_it_into() -> None:
    two_keys = {jamo: pressed for pressed, jamo in (MEDIALS_OF_TWO_KEYS | FINALS_OF_TWO_KEYS).items()}

    def letter(conjoining: str) -> str:
        # HANGUL CHOSEONG KIYEOK and HANGUL JONGSEONG KIYEOK are both typed as HANGUL LETTER KIYEOK.
        return unicodedata.lookup("HANGUL LETTER " + unicodedata.name(conjoining).split(" ", 2)[2])

    for syllable in SYLLABLES:
        jamo = map(letter, unicodedata.normalize("NFD", syllable))
        assert type_keys(syllable) == "".join(two_keys.get(one, one) for one in jamo)


@given(hangul)
def test_the_keys_of_a_run_of_syllables_give_the_run_again(run: str) -> None:
    assert compose_keys(keys(run)) == run


def test_keys_compose_what_an_input_method_would() -> None:
    for pressed, text in (
        ("ㅎㅏㄴㄱㅡㄹ", "한글"),
        ("ㄷㅏㄹㄱㅇㅣ", "닭이"),
        ("ㄷㅏㄹㄱㅣ", "달기"),
        ("ㅇㅓㅂㅅㅇㅓ", "없어"),
        ("ㅇㅓㅂㅅㅓ", "업서"),
        ("ㅇㅓㅂㅅㅅㅓ", "없서"),
        ("ㅇㅣㅆㅇㅓ", "있어"),
        ("ㄱㅏㄸㅏ", "가따"),
        ("ㄱㅏㅃ", "가ㅃ"),
        ("ㄱㄱㅏ", "ㄱ가"),
        ("ㄱㅏㅏ", "가ㅏ"),
        ("ㄱㅗㅏㅣ", "과ㅣ"),
        ("ㅗㅏ", "ㅘ"),
        ("ㅏㅗㄱ", "ㅏㅗㄱ"),
        ("ㄱㅅㅏ", "ㄱ사"),
        ("ㅇㅡㅣㄹㅗㅣ", "의뢰"),
        ("", ""),
    ):
        assert compose_keys(pressed) == text, pressed


def test_only_a_composed_syllable_is_typed() -> None:
    for wrong in ("", "가나", "ㄱ", "a", "\u1100", "豈"):
        with pytest.raises(ValueError, match=f"'{wrong}' is not one composed"):
            type_keys(wrong)


def test_neighbouring_is_mutual_and_every_jamo_on_a_key_has_neighbours() -> None:
    assert len(NEIGHBOURS) == 26 + 7
    assert set(NEIGHBOURS) == {key for one in SYLLABLES for key in type_keys(one)}
    assert all(a in NEIGHBOURS[b] for a, near in NEIGHBOURS.items() for b in near)
    assert all(a not in near and len(near) == len(set(near)) >= 2 for a, near in NEIGHBOURS.items())


def test_neighbours_are_those_of_the_keyboard() -> None:
    for key, near in (
        ("ㅁ", "ㅂㅈㄴㅋ"),  # a: q w s z
        ("ㅎ", "ㅅㅛㄹㅗㅍㅠ"),  # g: t y f h v b
        ("ㅏ", "ㅑㅐㅓㅣㅡ"),  # k: i o j l m
        ("ㅣ", "ㅐㅔㅏ"),  # l: o p k
        ("ㅅ", "ㄱㅛㄹㅎㅆ"),  # t: r y f g, and t with shift
        ("ㅆ", "ㄲㅅ"),  # T: R, and t
        ("ㅃ", "ㅉㅂ"),  # Q: W, and q
        ("ㅖ", "ㅒㅔ"),  # P: O, and p
        ("ㅡ", "ㅜㅓㅏ"),  # m: n j k
    ):
        assert set(NEIGHBOURS[key]) == set(near), key


@given(st.sampled_from(SYLLABLES))
def test_a_mistyping_is_one_mistake_away(syllable: str) -> None:
    pressed = type_keys(syllable)
    found = mistypings(syllable)
    assert set(found) == set(MISTAKES)
    assert len(found["neighbour"]) == sum(len(NEIGHBOURS[key]) for key in pressed)
    for other in found["neighbour"]:
        ((was, now),) = [(a, b) for a, b in zip(pressed, other, strict=True) if a != b]
        assert now in NEIGHBOURS[was]
    for other in found["dropped"]:
        assert len(other) == len(pressed) - 1
        assert any(pressed[:k] + pressed[k + 1 :] == other for k in range(len(pressed)))
    for other in found["doubled"]:
        assert [key for key, _ in itertools.groupby(other)] == [*pressed]
        assert len(other) == len(pressed) + 1
    assert len(found["transposed"]) == len(pressed) - 1
    for other in found["transposed"]:
        assert other != pressed
        assert sorted(other) == sorted(pressed)
    assert all(compose_keys(other) != syllable for others in found.values() for other in others)


def test_the_mistypings_of_a_syllable_by_hand() -> None:
    found = mistypings("나")
    # s: w e a d z x, k: i o j l m
    assert {compose_keys(k) for k in found["neighbour"]} == {*"자다마아카타", *"냐내너니느"}
    assert [compose_keys(k) for k in found["dropped"]] == ["ㅏ", "ㄴ"]
    assert [compose_keys(k) for k in found["doubled"]] == ["ㄴ나", "나ㅏ"]
    assert [compose_keys(k) for k in found["transposed"]] == ["ㅏㄴ"]


@given(composed, rates)
def test_typos_leave_syllables_and_loose_jamo_and_touch_nothing_else(text: str, rate: float) -> None:
    after = noised(text, rate)
    assert re.sub("[가-힣ㄱ-ㅣ]+", "", after) == re.sub("[가-힣ㄱ-ㅣ]+", "", text)


def test_mistakes_are_mixed_as_declared() -> None:
    pressed = type_keys("값")
    counts: Counter[int] = Counter()
    for k in range(4000):
        typed = keys(noised("값", 1.0, str(k)))
        counts[len(typed) - len(pressed)] += 1
    assert counts[-1] / 4000 == pytest.approx(0.1, abs=0.02)
    assert counts[1] / 4000 == pytest.approx(0.1, abs=0.02)
    assert counts[0] / 4000 == pytest.approx(0.8, abs=0.03)


def test_a_typo_runs_over_into_the_next_syllable_as_on_a_keyboard() -> None:
    alter = NOISES["jamo-typos"].alter
    dropped = (MISTAKES.index("dropped") + 0.5) / len(MISTAKES)
    assert mistypings("녕")["dropped"][1] == "ㄴㅇ"
    assert alter("안녕", {1: dropped}) == "안ㄴㅇ"
    assert alter("안녕하세요", {1: (MISTAKES.index("dropped") + 0.1) / len(MISTAKES)}) == "아녕하세요"
