"""Sentence endings in other speech levels: grammatical where they are replaced, and kept where they are ambiguous."""

from downstream.task import TextExample
from eval.measures.endings import LEVELS
from eval.measures.noise import NOISES, apply


def swap(text: str, level: str) -> str:
    """Move every ending that can be moved to LEVEL."""
    draw = (LEVELS.index(level) + 0.5) / len(LEVELS)
    return NOISES["endings"].alter(text, dict.fromkeys(NOISES["endings"].positions(text), draw))


SWAPS = [
    # 해라체 →
    ("정부는 새로운 부동산 대책을 발표했다.", "formal", "정부는 새로운 부동산 대책을 발표했습니다."),
    ("정부는 새로운 부동산 대책을 발표했다.", "polite", "정부는 새로운 부동산 대책을 발표했어요."),
    ("정부는 새로운 부동산 대책을 발표했다.", "intimate", "정부는 새로운 부동산 대책을 발표했어."),
    ("정부는 새로운 부동산 대책을 발표했다.", "note", "정부는 새로운 부동산 대책을 발표했음."),
    ("올해는 비가 많이 온다.", "formal", "올해는 비가 많이 옵니다."),
    ("올해는 비가 많이 온다.", "polite", "올해는 비가 많이 와요."),
    ("나는 그 배우를 잘 모른다.", "polite", "나는 그 배우를 잘 몰라요."),
    ("그는 음악을 듣는다.", "polite", "그는 음악을 들어요."),
    ("그는 음악을 듣는다.", "formal", "그는 음악을 듣습니다."),
    ("그 사람은 부산에 산다.", "formal", "그 사람은 부산에 삽니다."),
    ("노래가 참 아름답다.", "polite", "노래가 참 아름다워요."),
    ("노래가 참 아름답다.", "intimate", "노래가 참 아름다워."),
    ("색이 하얗다.", "polite", "색이 하얘요."),
    ("날이 어두워진다.", "polite", "날이 어두워져요."),
    ("꼭 봐야 한다.", "formal", "꼭 봐야 합니다."),
    ("더는 보고 싶지 않다.", "polite", "더는 보고 싶지 않아요."),
    ("아이가 밥을 먹는다.", "note", "아이가 밥을 먹음."),
    ("그는 이 회사의 사장이다.", "polite", "그는 이 회사의 사장이에요."),
    ("그는 이 회사의 사장이다.", "intimate", "그는 이 회사의 사장이야."),
    # 합쇼체 →
    ("저는 매일 신문을 읽습니다.", "plain", "저는 매일 신문을 읽는다."),
    ("그는 집을 짓습니다.", "polite", "그는 집을 지어요."),
    ("소리가 잘 들립니다.", "plain", "소리가 잘 들린다."),
    ("물가가 오르고 있습니다.", "plain", "물가가 오르고 있다."),
    ("길이 너무 멉니다.", "polite", "길이 너무 멀어요."),
    ("역시 그렇습니다.", "polite", "역시 그래요."),
    ("역시 그렇습니다.", "plain", "역시 그렇다."),
    ("서울은 한국의 수도입니다.", "polite", "서울은 한국의 수도예요."),
    ("서울은 한국의 수도입니다.", "plain", "서울은 한국의 수도다."),
    ("이건 사실이 아닙니다.", "polite", "이건 사실이 아니에요."),
    ("이건 사실이 아닙니다.", "note", "이건 사실이 아님."),
    ("내일도 비가 올 겁니다.", "polite", "내일도 비가 올 거예요."),
    ("할머니께서 시장에 가셨습니다.", "polite", "할머니께서 시장에 가셨어요."),
    ("할머니께서 시장에 가십니다.", "plain", "할머니께서 시장에 가신다."),
    ("강력히 추천합니다!", "plain", "강력히 추천한다!"),
    ("상황이 좋지 못합니다.", "polite", "상황이 좋지 못해요."),
    ("상황이 좋지 못합니다.", "plain", "상황이 좋지 못하다."),
    ("연기를 못합니다.", "plain", "연기를 못한다."),
    ("국회가 열리지 않습니다.", "plain", "국회가 열리지 않는다."),
    ("비가 올 듯합니다.", "plain", "비가 올 듯하다."),
    ("아는 척합니다.", "plain", "아는 척한다."),
    # 해요체 →
    ("결말이 정말 아쉬워요.", "plain", "결말이 정말 아쉽다."),
    ("기대만큼 재미있지 않아요.", "plain", "기대만큼 재미있지 않다."),
    ("배가 고파요.", "formal", "배가 고픕니다."),
    ("주가가 크게 떨어졌어요.", "note", "주가가 크게 떨어졌음."),
    ("이 영화는 최고예요.", "formal", "이 영화는 최고입니다."),
    ("이 영화는 최고예요.", "plain", "이 영화는 최고다."),
    ("이 영화는 감동이에요.", "plain", "이 영화는 감동이다."),
    ("영화를 봤는데 정말 좋았어요!!! ^^", "plain", "영화를 봤는데 정말 좋았다!!! ^^"),
    ("정말 재미있네요 ㅋㅋ", "intimate", "정말 재미있네 ㅋㅋ"),
    ("제가 할게요.", "intimate", "제가 할게."),
    ("손님이 많죠.", "intimate", "손님이 많지."),
    # 반말, 음슴체 →
    ("목격자가 나타났어.", "formal", "목격자가 나타났습니다."),
    ("생각보다 짧군.", "polite", "생각보다 짧군요."),
    ("다시 보고 싶네", "polite", "다시 보고 싶네요"),
    ("내가 말했잖아.", "polite", "내가 말했잖아요."),
    ("너무 비싸지?", "polite", "너무 비싸죠?"),
    ("완전 재미있음", "polite", "완전 재미있어요"),
    ("돈이 아까움", "plain", "돈이 아깝다"),
    # questions
    ("벌써 시작했습니까?", "polite", "벌써 시작했어요?"),
    ("벌써 시작했습니까?", "plain", "벌써 시작했냐?"),
    ("그 말을 믿냐?", "formal", "그 말을 믿습니까?"),
    ("이것도 영화냐?", "polite", "이것도 영화예요?"),
    ("이것도 영화냐?", "intimate", "이것도 영화야?"),
    ("누가 이겼을까?", "polite", "누가 이겼을까요?"),
]


def test_endings_are_replaced_grammatically() -> None:
    for before, level, after in SWAPS:
        assert swap(before, level) == after, (before, level)


# What -요 alone makes polite or takes back is sure in any mood; more is not.
ONLY_YO = [
    ("같이 가요.", "같이 가."),
    ("빨리 먹어.", "빨리 먹어요."),
    ("보지 마", "보지 마요"),
    ("가만히 있어요.", "가만히 있어."),
    ("뭐가 재미있어", "뭐가 재미있어요"),
    ("누가 봤어", "누가 봤어요"),
    ("이게 재미있어", "이게 재미있어요"),
]


def test_what_may_ask_order_or_propose_only_gains_or_loses_yo() -> None:
    for before, after in ONLY_YO:
        assert {level: swap(before, level) for level in LEVELS} == dict.fromkeys(LEVELS, after), before


def test_ambiguous_endings_stay() -> None:
    for text in (
        "",
        "...",
        "굳 ㅋ",
        "재미있는 영화",
        "국회, 예산안 의결",
        "밥을 먹다",  # the dictionary's form
        "할 말을 잃음",  # present or past
        "여기 앉으세요.",
        "문을 닫아라.",
        "우리 함께 하자.",
        "조용히 하십시오.",
        "말이 맞다.",  # a verb to some, an adjective to others
        "좋은 영화였는데",
        "그가 왔다고 한다면",
        "나도 봤당",
        "재밌어여",
        "3D다.",
        "일본 꺼 아냐?",  # short for 아니야, read as 알냐
        "죽을 순 없져",
        "하나다.",
        "GDNTOPCLASSINTHECLUB",
    ):
        assert NOISES["endings"].positions(text) == [], text
        assert all(swap(text, level) == text for level in LEVELS), text


def test_a_quotation_inside_a_sentence_keeps_its_ending() -> None:
    assert swap("김 대표는 “책임을 지겠다.”라고 말했다.", "formal") == "김 대표는 “책임을 지겠다.”라고 말했습니다."


def test_every_sentence_of_a_text_is_replaced_in_its_place() -> None:
    before = "정부는 대책을 발표했다. 시민들은 반대했다.\n시장은 조용하다."
    assert swap(before, "formal") == "정부는 대책을 발표했습니다. 시민들은 반대했습니다.\n시장은 조용합니다."


def test_a_word_that_continues_is_not_an_ending() -> None:
    assert "있었습니다면" not in swap("캐슬링의 의도가 있었다면 룩을 옮긴다.", "formal")


def test_both_texts_of_a_pair_move_to_the_same_level() -> None:
    seen = set()
    for k in range(40):
        pair = TextExample(str(k), "정부가 대책을 발표했다.", "시민들이 반대했다.", "neutral")
        after = apply(NOISES["endings"], pair, 1.0, 0)
        assert after.pair is not None
        endings = (after.text.removeprefix("정부가 대책을 발표"), after.pair.removeprefix("시민들이 반대"))
        assert endings[0] == endings[1]
        seen.add(endings[0])
    assert seen == {"했습니다.", "했어요.", "했어.", "했음."}
