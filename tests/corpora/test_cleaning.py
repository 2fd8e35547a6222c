"""Cleaning: every edit, every reason to drop, and that a newsroom's sentences come through unharmed."""

import doctest
import gzip
import json
import unicodedata
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpora.cleaning
from corpora.cleaning import (
    CleaningConfig,
    count_letters,
    edit,
    evaluation_texts,
    hangul_share,
    reason_to_drop,
    repetition,
    text_digest,
)
from corpora.foundation.errors import DataError

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

SAMPLE = Path(corpora.cleaning.__file__).parent / "sample" / "news.jsonl"
CONFIG = CleaningConfig()
BODY = "한국은행이 기준금리를 3.0%로 묶었다."


@dataclass
class Counts:
    dropped: Counter[str] = field(default_factory=Counter)
    edited: Counter[str] = field(default_factory=Counter)


def clean(texts: list[str], config: CleaningConfig = CONFIG) -> tuple[list[str], Counts]:
    """Return the texts that come through, and what happened to them."""
    kept, counts = [], Counts()
    for text in texts:
        edited, edits = edit(text, config)
        counts.edited.update(edits)
        if reason := reason_to_drop(edited, config):
            counts.dropped[reason] += 1
        else:
            kept.append(edited)
    return kept, counts


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(corpora.cleaning).failed == 0


# ---- characters and blanks ----


def test_what_is_not_seen_goes_and_blanks_are_single(subtests: pytest.Subtests) -> None:
    for text, edited in [
        ("금\b리가\x00 올\u200b랐다\ufeff.\xad", "금리가 올랐다."),
        ("금리가\ufffd올랐다.\u3164총재는", "금리가 올랐다. 총재는"),
        ("금리가\u2060 올랐다.\u202e\u200e", "금리가 올랐다."),
        ("축제 👨\u200d👩\u200d👧 개\u200d막", "축제 👨\u200d👩\u200d👧 개막"),  # joiners belong to the family alone
        ("르\u115fᅮᆯ ᄏ\u1160ᄏ\u1160", "르ᅮᆯ ᄏᄏ"),
        ("금리가\u3000\xa0올랐다.\t총재는 \u2003말을", "금리가 올랐다. 총재는 말을"),
        (
            "  첫 줄 \r\n둘째 줄\r셋째 줄\x0b넷째 줄\u2028다섯째\x85여섯째",
            "첫 줄\n둘째 줄\n셋째 줄\n넷째 줄\n다섯째\n여섯째",
        ),
        ("\n\n첫 단락\n \n\u3000\n\n둘째 단락\n\n", "첫 단락\n\n둘째 단락"),
        ("면적 84㎡, ２０２２년 “인용” … 李 대표", "면적 84㎡, ２０２２년 “인용” … 李 대표"),
    ]:
        with subtests.test(text=text, edited=edited):
            assert edit(text, CONFIG)[0] == edited


ODD = [
    *"가 다.ㅋaZ1\n\t\r\x00\b\x0b\x1c\x85\xa0\xad\u200b\u200d\u2028\u3000\u3164\ufeff\ufffd👨",
    "\r\n",
    "  ",
    "기자",
    "=",
]


@given(st.lists(st.sampled_from(ODD), max_size=40).map("".join))
def test_editing_twice_changes_nothing_more_and_loses_no_letter(text: str) -> None:
    plain = CleaningConfig(remove_boilerplate=False)
    edited, _ = edit(text, plain)
    assert edit(edited, plain) == (edited, set())
    assert edited == edited.strip()
    assert "  " not in edited
    assert "\n\n\n" not in edited
    assert not any(unicodedata.category(c) in {"Cc", "Cf"} and c not in "\n\u200d" for c in edited)
    seen = [c for c in edited if not c.isspace() and c != "\u200d"]
    assert seen == [c for c in text if not c.isspace() and c.isprintable() and c not in "\u3164\ufffd"]


# ---- boilerplate ----

LINES_THAT_GO = {
    "byline": [
        *["김하늘 기자", "김하늘 기자 sky@press.example", "김하늘 기자(sky@press.example)", "[김하늘 기자]"],
        *["로스마=한지우 특파원 jiwoo@press.example", "글·사진 김하늘 기자 sky@press.example", "글·사진=김하늘 기자"],
        *[
            "김하늘·이바다 기자",
            "김하늘 기자, 이바다 기자",
            "김하늘 선임기자",
            "김하늘 인턴기자 sky@press.example",
            "남궁하늘 논설위원",
        ],
    ],
    "email": [
        *["sky@press.example", "제보 jebo@press.example", "여울목신문 온라인뉴스팀 online@press.co.example"],
        *["gaon.moon@press.example (끝)", "[sky@press.example]", "고충처리인에게 의견 보내기: ombudsman@press.example"],
    ],
    "copyright": [
        *[
            "<저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>",
            "<저작권자(c) 물빛통신, 무단 전재-재배포 금지>",
            "ⓒ 물빛일보",
        ],
        *[
            "무단전재 및 재배포 금지",
            "저작권자 © 물빛일보 무단전재·재배포 금지",
            "Copyright ⓒ Mulbit Daily. All rights reserved.",
        ],
        *[
            "<저작권자(c) 물빛통신, 무단 전재-재배포 금지>2024/12/17 08:00 송고",
            "[ⓒ 세상을 보는 눈, 물빛경제(www.mulbit.example)]",
        ],
    ],
    "caption": [
        *[
            "26일 선착장에서 사무원들이 기표대를 내리고 있다. /사진=서율일보 길보미 기자",
            "[사진=물빛통신]",
            "(사진제공=서율시)",
        ],
        *["11일 투표소 앞에 줄을 선 주민들. /윤슬타임스", "체육관 전경. /라온갈이 제공", "첫 경매. /천유성 기자"],
        *[
            "22일 너울항에 정박한 배. 사진 / 너울매일",
            "상상도. /그림=도울천문연구원",
            "▲ 17일 벼리시의회 본회의장 모습",
        ],
        *["발사대에 ‘하늬-2’가 서 있다. 노루섬=사진공동취재단", "[사진 = 게티이미지]", "대접들. /사진=조사단 제공"],
    ],
    "promotion": ["▶ 물빛통신 구독하기", "☞ 물빛일보 바로가기", "▶ 기사 제보", "▶ 물빛통신 카카오톡 친구추가!"],
    "end_mark": ["(끝)", "<끝>"],
}


def test_a_line_that_the_newsroom_put_there_goes_and_is_counted_by_its_kind(subtests: pytest.Subtests) -> None:
    for kind, line in [(kind, line) for kind, lines in LINES_THAT_GO.items() for line in lines]:
        with subtests.test(kind=kind, line=line):
            text = f"{BODY}\n{line}\n총재는 말을 아꼈다."
            assert edit(text, CONFIG) == (f"{BODY}\n총재는 말을 아꼈다.", {kind})
            assert edit(text, CleaningConfig(remove_boilerplate=False)) == (text, set())


def test_the_head_of_agency_copy_goes_and_the_sentence_stays(subtests: pytest.Subtests) -> None:
    for head in [
        *[
            "(서울=물빛통신) 김하늘 기자 = ",
            "[서울=물빛뉴스]",
            "[서울=물빛뉴스] 김하늘 기자 = ",
            "(로스마=물빛통신) 김하늘 특파원 = ",
        ],
        *[
            "[물빛경제 김하늘 기자] ",
            "[물빛경제=김하늘 기자] ",
            "【서울·벼리=물빛뉴스】김하늘·이바다 기자 = ",
            "[김하늘 기자] ",
        ],
        *["김하늘 기자 = ", "[사진=물빛통신] "],
    ]:
        with subtests.test(head=head):
            assert edit(head + BODY, CONFIG) == (BODY, {"dateline"})


def test_a_line_that_only_looks_like_it_stays(subtests: pytest.Subtests) -> None:
    for line in [
        *["그는 20년 경력의 기자다.", "무단 전재를 금지하는 법안이 통과됐다.", "저작권자는 이 법에 따라 보호받는다."],
        *["문의는 sky@press.example 로 해 주세요.", "영화나 보며 즐기자", "매력 있는 연기자", "(A=B)라고 하자."],
        *[
            "▶ 스티브 잡스가 회사에서 내쫓긴 이유는?",
            "▷ 광고 매출을 올리기 위해 클릭을 유도한 뒤",
            "사진/영상 자료 공개",
            "1/2 정도",
        ],
        *[
            "피해자 사진을 제공한 사람은 김하늘 기자였다.",
            "◇ 세입자가 확인할 것",
            "― 하루 일과가 궁금하다.",
            "아직도 들으면 설렘 ⓒⓞⓞⓛ",
        ],
        "저작권자 ⓒ " + "이름이 긴 회사 " * 20,
    ]:
        with subtests.test(line=line):
            text = f"{BODY}\n{line.strip()}\n총재는 말을 아꼈다."
            assert edit(text, CONFIG) == (text, set())


def test_several_triangles_are_a_list_and_a_single_one_is_a_caption() -> None:
    several = "추진 과제는 다음과 같다.\n▲ 주거 안정\n▲ 일자리"
    assert edit(several, CONFIG)[0] == several
    assert edit("▲ 회의 모습\n회의가 열렸다.", CONFIG)[0] == "회의가 열렸다."


def test_a_text_of_one_line_is_no_byline(subtests: pytest.Subtests) -> None:
    for text in ["거대한 기자", "파일 구합니다 sky@press.example", "▲ 시에 두는 공무원 정원표"]:
        with subtests.test(text=text):
            assert edit(text, CONFIG) == (text, set())


def test_the_sample_loses_its_boilerplate_and_no_sentence() -> None:
    """What stands between the authors' sentences is boilerplate, but for subheads and questions."""
    gone = boilerplate = 0
    for article in map(json.loads, SAMPLE.read_text(encoding="utf-8").splitlines()):
        edited, _ = edit(article["text"], CONFIG)
        cursor = 0
        for start, end in [*article["sentences"], [len(article["text"])] * 2]:
            sentence = article["text"][start:end]
            assert sentence.rpartition(" 기자 = ")[2].rpartition(" 특파원 = ")[2] in edited
            between = article["text"][cursor:start].split("\n")
            lines = [line for line in between if line.strip() and not line.startswith(("◇", "―"))]
            boilerplate, gone = boilerplate + len(lines), gone + sum(line not in edited for line in lines)
            cursor = end
    assert gone / boilerplate > 0.95  # measured 78 of 81


# ---- reasons ----


def test_a_text_goes_for_what_it_is(subtests: pytest.Subtests) -> None:
    for text, config, reason in [
        ("", CONFIG, "empty"),
        ("재밌다.", CONFIG, "too_short"),
        ("재밌다..", CONFIG, None),
        ("재밌다.", CleaningConfig(min_chars=4), None),
        ("Parasite is great, 봉준호 최고", CONFIG, "not_korean"),  # 5 of 20 letters
        ("Parasite is great, 봉준호 최고", CleaningConfig(min_hangul=0.25), None),
        ("2024.12.17. 10:30", CONFIG, "not_korean"),
        ("2024.12.17. 10:30", CleaningConfig(min_hangul=0), None),
        ("ㅋㅋㅋㅋㅋㅋ", CONFIG, "repetitive"),
        ("굿 굿 굿 굿 굿 굿", CONFIG, "repetitive"),
        ("노잼 노잼 노잼 노잼 영화", CONFIG, "repetitive"),  # 4 of 5 eojeol
        ("노잼 노잼 노잼 영화 비추", CONFIG, None),
        ("노잼 노잼 노잼 노잼 영화", CleaningConfig(max_repetition=0.8), None),
        ("대박 ㅋㅋㅋㅋㅋㅋㅋㅋ 웃기다", CleaningConfig(max_repetition=0.6), "repetitive"),  # 8 of 13 letters
        ("대박 ㅋㅋㅋㅋㅋㅋㅋㅋ 웃기다", CONFIG, None),
        ("정말.....................", CONFIG, None),
        ("와...ㅋㅋㅋ", CONFIG, None),  # 3 of 4 letters, but too few to say
        (BODY, CONFIG, None),
    ]:
        with subtests.test(text=text, config=config, reason=reason):
            assert reason_to_drop(text, config) == reason


def test_shares_are_those_counted_by_hand() -> None:
    assert hangul_share(count_letters("한글 ab1, 李ㅋ")) == 3 / 6
    assert hangul_share(count_letters("12:30")) == 0
    assert repetition({"노잼": 4, "영화": 1}) == 4 / 5
    assert repetition({"노잼": 4}) == 0


def test_digests_differ_where_letters_do() -> None:
    assert text_digest("A 가\n나") == text_digest("a가나") != text_digest("a가다")
    assert 0 <= text_digest("") < 2**64


# ---- evaluation files ----


def test_every_string_of_an_evaluation_file_counts(write: Write, subtests: pytest.Subtests) -> None:
    for name, content, texts in [
        (
            "ratings_test.txt",
            "id\tdocument\tlabel\n1\t굳 ㅋ\t1\n2\t뭐야 이 평점들은\t0\n",
            {"굳 ㅋ", "뭐야 이 평점들은"},
        ),
        ("dev.tsv", 'sentence1\tsentence2\n"엄마, 저 왔어요."\t그는 왔다.\n', {'"엄마, 저 왔어요."', "그는 왔다."}),
        ("dev.csv", 'id,premise\n1,"첫째, 둘째"\n', {"첫째, 둘째"}),
        ("dev.jsonl", '{"premise": "첫째", "more": ["둘째", {"third": "셋째"}]}\n\n', {"첫째", "둘째", "셋째"}),
        (
            "dev.json",
            '{"data": [{"paragraphs": [{"context": "지문", "qas": [{"question": "질문"}]}]}]}',
            {"지문", "질문"},
        ),
        (
            "ner_dev.tsv",
            "## klue-ner-1\t<김하늘:PS> 씨는 <어제:DT> <서울:LC>에 갔다.\n김\tB-PS\n",
            {"김하늘 씨는 어제 서울에 갔다."},
        ),
        ("plain.txt", "한 줄이 글이다.\n또 한 줄.\n", {"한 줄이 글이다.", "또 한 줄."}),
    ]:
        with subtests.test(name=name, content=content, texts=texts):
            assert texts <= set(evaluation_texts(write(name, content)))
            assert texts <= set(evaluation_texts(write(name, unicodedata.normalize("NFD", content))))
            assert texts <= set(evaluation_texts(write(f"{name}.gz", gzip.compress(content.encode()))))


def test_an_evaluation_file_that_cannot_be_read_is_one_line(
    write: Write, fails: Fails, subtests: pytest.Subtests
) -> None:
    for name, content, what in [
        ("dev.json", "[{", "not valid JSON"),
        ("dev.jsonl", "{\n", "not valid JSON"),
        ("dev.xml", "<a/>", "unknown format '.xml'"),
        ("dev.tsv", "", "zero bytes"),
    ]:
        with subtests.test(name=name, content=content, what=what):
            path = write(name, content)
            with fails(DataError, path, what):
                list(evaluation_texts(path))
