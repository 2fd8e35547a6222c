r"""Lines of a text that belong together: a terminal, a PDF or a mail program has wrapped a paragraph.

>>> text = "물빛시가 낡은 다리를 헐고 새 다리를 놓기로 했다고 25일 밝\n혔다. 공사비는 300억원이다.\n시민은 반겼다."
>>> [text[start:end] for start, end in blocks_of(text)]
['물빛시가 낡은 다리를 헐고 새 다리를 놓기로 했다고 25일 밝\n혔다. 공사비는 300억원이다.', '시민은 반겼다.']
>>> join_lines("25일 밝\n혔다. 공사비는\n300억원이다.")
'25일 밝혔다. 공사비는 300억원이다.'
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

# The line ends that str.splitlines knows.
LINE = re.compile("[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
ONE_BREAK = re.compile("[^\\S\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]*(?:\r\n|[\n\r\x0b\x85\u2028])[^\\S\n\r]*")
# Only from the beginning of white space: it would be read again from each of its characters.
BREAKS = re.compile("(?<![^\\S\n\r])[^\\S\n\r]*[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]\\s*")
WIDEST = 160
"""Columns of the widest wrapped line; a Hangul syllable takes two. Paragraphs in one line are wider."""
NARROWEST = 30
"""Columns of the narrowest wrapped line; verse, captions and lists are narrower."""
MIN_WRAPPED = 2
"""Full lines without a sentence end that make a text a wrapped one."""
SHARE_WRAPPED = 0.6
"""Share of full lines among those without a sentence end; the others are headings, bylines and lists."""
FULL = 0.93
"""Share of the widest line that a line and the next word exceed if the word did not fit: a PDF's lines are ragged."""
LONGEST_OPEN = 400
"""Characters over which a quotation continues in the next line."""
FINISHED = re.compile(r"[.!?…。\uff01\uff1f:;][”’\"')」』》〉】\]]*\s*$")
# 했다, 있습니다, 했음, 있나요: a sentence without its full stop, or half a word
BARE = re.compile(r"[가-힣](?:다|요|죠|까|음|함|됨|임)[”’\"')」』》〉】\]]*\s*$")
ITEM = re.compile(
    r"\s*(?:[▲△▼▽◆◇■□●○◎★☆▶▷►☞※•·∙*#©ⓒ①-⑳]|[-–—―]\s?|\d{1,2}[.)]\s|[가나라마바사아자차카타파하][.)]\s|[(\[<【〈][^()\[\]<>]*[)\]>】〉]\s*$)"
)
# Lines around an article, which no wrap has cut: 김하늘 기자 sky@press.example, ⓒ 물빛통신
APART = re.compile(
    r".{0,40}기자\s*[)\]】]?\s*(?:\S+@\S+\s*)?$|\S+@\S+\s*$|.*(?:[ⓒ©]|무단.{0,4}(?:전재|복제|배포|사용))"
)
# A dateline begins a paragraph and may be wrapped itself.
DATELINE = re.compile(r".{0,60}기자\s*=")
# 밝|혔다., 라|고 말했다: no word begins like this
FRAGMENT = re.compile(
    r"(?:다고|다며|다면서|다는|다[.,]|라고|이라고|라며|이라며|라면서|라는|이라는|라던|란|습니다|니다|[었았였겠혔렸졌쳤켰텼]|에서|에게|까지|부터\s|으로\s)"
)
DECIMAL = re.compile(r"\d[.,]$")
# 밝혔다|고 말했다: but 만났다|고 씨는
PARTICLE = re.compile(r"[고며은는을를와]\s")
# 다리를|, 하고|, 놓는|: no line of a list ends like this, and hardly a headline
CONTINUED = re.compile(
    r"(?:,|[가-힣](?:[을를]|(?:[하되이있]|었|았|했|됐)(?:고|며|는)|면서|위한|위해|대한|따른|통해|이라고|다고))\s*$"
)
CANNOT_BEGIN = frozenset(".,!?…”’)]」』〉》】。、")
LONG_ENOUGH = 15
"""Characters of a line that continues in the next one; shorter ones are headings."""
# Marks whose closing one may lie in the next line
DIRECTED = {"“": "”", "‘": "’", "「": "」", "『": "』", "(": ")", "[": "]", "〈": "〉", "《": "》", "【": "】"}
# The last straight mark of a line opens a quotation, the first one of the next line closes it.
STRAIGHT_OPENED = re.compile(r'(?:^|[\s(\[,])"(?=[^\s"])[^"]*$')
STRAIGHT_CLOSED = re.compile(r'[^"]*[^\s"]"(?!\w*")')
OPEN_MARK = re.compile("[“‘「『(\\[〈《【”’」』)\\]〉》】]")


def blocks_of(text: str) -> list[tuple[int, int]]:
    """Return the spans of a text's paragraphs: a line, or the lines of a wrapped paragraph.

    Lines are joined over a single break, never over a blank line: if the text is wrapped and the next word did not fit,
    if the break cuts a word, or if a quotation or a bracket is open. A sentence end at the break changes nothing in the
    first two cases: the break ends the sentence as well.

    Returns:
        (start, end) of each block in order, without the white space around it; only white space lies between them.
    """
    lines = [
        (match.start() + len(line) - len(line.lstrip()), match.start() + len(line.rstrip()))
        for match in LINE.finditer(text)
        if (line := match.group()).strip()
    ]
    if len(lines) < 2:
        return lines
    joined = _joined(text, lines)
    blocks = [lines[0]]
    for span, is_joined in zip(lines[1:], joined, strict=True):
        if is_joined:
            blocks[-1] = (blocks[-1][0], span[1])
        else:
            blocks.append(span)
    return blocks


def join_lines(sentence: str) -> str:
    """Return a sentence in one line: a word that a break cuts is whole again, and a blank replaces other breaks."""
    parts = BREAKS.split(sentence)
    joined = parts[0]
    for part in parts[1:]:
        is_cut = joined[-1:].isalnum() and FRAGMENT.match(unicodedata.normalize("NFC", part[:16])) is not None
        joined += ("" if is_cut or not joined else " ") + part
    return joined


def _joined(text: str, lines: Sequence[tuple[int, int]]) -> list[bool]:
    """Return for each line but the last whether the next one continues it."""
    pairs = [
        k
        for k, ((_, end), (start, _)) in enumerate(pairwise(lines))
        if ONE_BREAK.fullmatch(text, end, start) and not ITEM.match(text, start, lines[k + 1][1])
    ]
    texts = {k: text[slice(*lines[k])] for pair in pairs for k in (pair, pair + 1)}
    apart = {k for k, line in texts.items() if len(line) <= WIDEST and APART.match(line)}
    pairs = [k for k in pairs if not {k, k + 1} & apart and not DATELINE.match(texts[k + 1])]
    widest = max((_width(texts[k]) for k in pairs), default=0)
    full: set[int] = set()
    if NARROWEST <= widest <= WIDEST:
        full = {k for k in pairs if _width(texts[k]) + 1 + _width(texts[k + 1].split(None, 1)[0]) > FULL * widest}
    unfinished = [k for k in pairs if not FINISHED.search(texts[k][-20:])]
    unended = [k for k in unfinished if not BARE.search(texts[k][-20:])]
    num_full = sum(k in full for k in unended)
    is_wrapped = num_full >= MIN_WRAPPED and num_full >= SHARE_WRAPPED * len(unended)
    if is_wrapped:
        unfinished += [k for k in full if texts[k + 1][0].isdigit() and DECIMAL.search(texts[k])]
    continues = {k for k in unfinished if (is_wrapped and k in full) or _is_cut(texts[k], texts[k + 1])}
    continues |= {
        k for k in pairs if FRAGMENT.match(texts[k + 1]) and texts[k + 1][0] in "라이" and texts[k][-1] in "”’\"'"
    }
    continues |= {k for k in pairs if texts[k + 1][0] in CANNOT_BEGIN}
    continues |= {k for k in pairs if _is_open(texts[k], texts[k + 1])}
    return [k in continues for k in range(len(lines) - 1)]


def _width(line: str) -> int:
    return len(line) + sum(character > "\u1100" for character in line) if len(line) <= WIDEST else 2 * WIDEST


def _is_cut(line: str, following: str) -> bool:
    """Whether a break without a sentence end lies inside a sentence, whatever the widths."""
    if len(line) < LONG_ENOUGH or len(line) > WIDEST:
        return False
    word = following.split(None, 1)[0]
    is_last_word = len(word) <= 8 and word[-1] == "." and word[0] >= "가"
    return bool(
        (line[-1].isalnum() and (FRAGMENT.match(following) or is_last_word))
        or (not BARE.search(line[-20:]) and (PARTICLE.match(following) or CONTINUED.search(line[-20:])))
    )


def _is_open(line: str, following: str) -> bool:
    """Whether a quotation or bracket of LINE is closed in the next one."""
    tail, head = line[-LONGEST_OPEN:], following[:LONGEST_OPEN]
    opened: list[str] = []
    for match in OPEN_MARK.finditer(tail):
        mark, is_glued = match.group(), tail[match.start() - 1 : match.start()].isalnum()
        if mark in DIRECTED:
            if mark not in "“‘" or not is_glued:  # a mark behind a letter is a closing one that was mistyped
                opened.append(DIRECTED[mark])
        elif mark in opened:
            del opened[opened.index(mark) :]
    first = OPEN_MARK.search(head)
    if first and first.group() in opened:
        return True
    return STRAIGHT_OPENED.search(tail) is not None and STRAIGHT_CLOSED.match(head) is not None
