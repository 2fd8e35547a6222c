r"""Boilerplate around a news article: bylines, datelines, captions, notices, links.

`remove_boilerplate` deletes the kinds that newsrooms add to a text from a corpus. `segments_of` keeps every character
and labels more kinds, so that summaries leave them out: what a page prints around its articles (links, notices, time
stamps), what the script of a broadcast holds (cues, sign-offs), and headings inside a text. A doubtful line counts as
text.

>>> text = "(서울=물빛통신) 김하늘 기자 = 금리가 올랐다. 물가도 올랐다.\n▲ 25일 회의장 모습. /사진=물빛통신"
>>> for segment in segments_of(text):
...     print(segment.kind or "sentence", text[segment.start : segment.end], sep=": ")
dateline: (서울=물빛통신) 김하늘 기자 =
sentence: 금리가 올랐다.
sentence: 물가도 올랐다.
caption: ▲ 25일 회의장 모습. /사진=물빛통신
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from corpora.characters import collapse_blanks
from corpora.readers.lines import blocks_of, join_lines
from corpora.sentences import CLOSE, DATE, DATELINE, NAME, OPEN, PLACE, REPORTERS, Sentence, is_litany, split_article


@dataclass(frozen=True)
class Segment:
    """A sentence of an article (kind "") or boilerplate: `text[start:end]` in code points."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class BoilerplateKind:
    """The lines of one kind of boilerplate; a pattern matches whole lines."""

    corpus: re.Pattern[str] | None = None
    """Lines that a corpus leaves out. They are in no summary, either."""
    article: re.Pattern[str] | None = None
    """Further lines that are no part of an article; a corpus keeps them."""


_EMAIL = r"[A-Za-z0-9._+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"

LONGEST_BOILERPLATE = 150
"""Characters of the longest line that counts as boilerplate; a longer one is a paragraph."""
MARKS = (*"=@/ⓒ©▲▶☞►", "기자", "특파원", "통신원", "리포터", "논설위원", "저작권", "무단", "opyright", "eserved", "끝")
"""Every boilerplate line contains one of these; a text without any is skipped."""
_NAMES = rf"{NAME}(?:\s?[·,/]?\s?{NAME}){{0,4}}"
_URL = r"(?:https?://|www\.)[^\s가-힣]+"
_BULLET = r"[\[(<【▶▷☞►◀■□◆◇●※*\s]*"
_COLON = r"\s?[:=|/\uff1a]\s?"
_MEDIUM = r"[가-힣A-Za-z]{1,9}(?:신문|일보|통신|뉴스|방송|경제|타임스|투데이|미디어|TV)"
_CUE = (
    r"(?:앵커|기자|취재기자|아나운서|리포트|인터뷰|녹취|자막뉴스|싱크|현장음|VCR|클로징|오프닝)(?:\s?멘트|\s?리포트)?"
)


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


KINDS: Mapping[str, BoilerplateKind] = {
    "byline": BoilerplateKind(
        # 김하늘 기자 sky@press.example; 글·사진 김하늘 기자; 로스마=한지우 특파원
        corpus=re.compile(
            rf"[-―/]?\s?{OPEN}?(?:글\s?[·,/]?\s?사진\s?[=:]?\s?)?(?:{PLACE}=\s?)?{REPORTERS}"
            rf"(?:\s?[/,|(]?\s?{_EMAIL}\)?)?{CLOSE}?\.?(?:\s?\(끝\))?"
        ),
        article=_any(
            # 김하늘기자 sky@press.example; /세종=김하늘 객원기자; 김하늘·한지우 기자 = sky@press.example
            rf"[-―/]?\s?(?:[가-힣]{{2,6}}\s?=\s?)?{NAME}\s?(?:[·,]\s?{NAME}\s?)*"
            rf"(?:인턴|수습|선임|객원|전문|시민|명예|의학전문|논설)?\s?(?:기자|특파원|위원)(?:\s?[=/|(\[]?\s?{_EMAIL}[)\]]?)?",
            # 취재=김하늘, 한지우 기자; 글·사진=김하늘; 영상취재: 김하늘; 촬영기자 : 김하늘
            rf"(?:취재|글|정리|영상|편집|촬영|사진|그래픽|구성|기획|제작|번역|자막|리서처)(?:\s?[·,/]?\s?(?:취재|사진|편집|영상|기자|제작))?"
            rf"{_COLON}{_NAMES}(?:\s?(?:기자|PD|피디|작가|디자이너))?",
            # 물빛신문 경제부; 물빛뉴스 디지털뉴스팀; /온라인뉴스팀 online@press.example
            rf"{_MEDIUM}\s[가-힣]{{1,5}}(?:부|팀|국)",
            rf"[/(\[]?\s?(?:{_MEDIUM}\s)?(?:온라인|디지털|인터넷|모바일)\s?(?:뉴스|이슈|콘텐츠|편집)?\s?(?:팀|부|국|센터|본부)"
            rf"(?:\s?기자)?(?:\s{_EMAIL})?[)\]]?",
        ),
    ),
    "email": BoilerplateKind(
        # 제보 jebo@press.example; an address alone
        corpus=re.compile(rf"[^.!?@]{{0,25}}{OPEN}?{_EMAIL}{CLOSE}?(?:\s?\(끝\))?"),
    ),
    "copyright": BoilerplateKind(
        # <저작권자 ⓒ 물빛통신, 무단 전재 및 재배포 금지>; but no sentence about the law, and no ⓒⓞⓞⓛ
        corpus=re.compile(
            r"(?!.*[다요]\.$)(?:.*무단.{0,4}(?:전재|복제|배포|사용|수집).*금지.*|.{0,60}[ⓒ©](?!ⓞ).*|.*저작권자\s?\([cC]\).*"
            r"|.*[Cc]opyright.*|.*[Aa]ll [Rr]ights [Rr]eserved.*)"
        ),
        article=_any(
            # 무단전재 및 재배포, AI 학습 이용 금지; 이 기사의 저작권은 물빛신문에 있습니다.
            r"(?!.*[다요]\.$).*(?:무단\s?(?:전재|복제|배포|도용)|재배포|저작권자).{0,40}(?:금지|불허|불가|ⓒ|©).*",
            r".{0,20}저작권은\s.{1,30}에\s?(?:있습니다|있음)\.?",
        ),
    ),
    "caption": BoilerplateKind(
        # … 내리고 있다. /사진=서율일보 길보미 기자; … 주민들. /윤슬타임스; [사진=물빛통신]
        corpus=re.compile(
            r"(?:.*[\s/.\[(【<〈])?(?:사진|그래픽|그림|자료|일러스트|영상)\s?(?:제공|출처|캡처|캡쳐)?(?:\s?[=ⓒ]\s?|\s/\s)"
            rf"[^.!?=]{{2,30}}{CLOSE}?"
            rf"|.*[.\s]\s?/\s?(?:{REPORTERS}|[가-힣A-Za-z0-9· ]{{2,18}}(?:제공|신문|일보|통신|뉴스|타임스|경제|매일))"
            r"|.*=\s?사진공동취재단"
        ),
        article=_any(
            # [사진] 25일 회의장; (사진=김하늘 기자); 〈표〉 기준금리 추이
            r"[\[(<【〈]\s?(?:사진|그래픽|표|자료\s?사진|자료|영상|일러스트|포토)[^\])>】〉]{0,40}[\])>】〉].{0,100}",
            # 사진제공=물빛군청; 자료: 통계청; … 전경. 사진 제공 물빛군청
            rf"(?:사진\s?제공|자료\s?사진|사진\s?출처|사진|그래픽|자료)(?:{_COLON}|\s?[ⓒ©]\s?).{{1,60}}",
            r".*[/(\[【<\s](?:사진\s?제공|자료\s?사진|자료\s?제공)\s?[=:]?\s?[^.!?]{0,30}[)\]】>]?",
            # … 시민들. 게티이미지뱅크; … 한 장면. (물빛방송 갈무리)
            r".{0,80}[\s/(\[](?:게티이미지(?:뱅크|코리아)?|셔터스톡|픽사베이|Getty\s?Images(?:Bank)?|Shutterstock|Pixabay)[)\]]?",
            r".{2,80}[\s.][(\[/][^()\[\]]{1,20}(?:제공|캡처|캡쳐|갈무리)[)\]]?",
            # ※ 사진은 기사 내용과 관련 없음
            r"[*※(\[]?\s?(?:위\s|해당\s|이\s)?사진은\s(?:기사|본문|특정).{0,30}(?:없음|무관|없습니다|무관합니다|무관함)\.?[)\]]?",
        ),
    ),
    "promotion": BoilerplateKind(
        # ▶ 물빛통신 구독하기
        corpus=re.compile(r"[▶☞►]\s?[^.]{0,60}(?:구독|바로\s?가기|보러\s?가기|제보|친구\s?추가)(?:하기)?[!~☞▶►]*"),
    ),
    "notice": BoilerplateKind(
        article=_any(
            r"※.{1,150}",
            # [편집자 주: …]
            rf"{_BULLET}편집자\s?[주註].*",
            # 카카오톡 : '물빛제보' 검색; ■ 제보하기; 여러분의 제보를 기다립니다.
            rf"{_BULLET}(?:전화|카카오톡|카톡|이메일|메일|유튜브|네이버|홈페이지|페이스북|인스타그램|라인)\s?[:\uff1a].{{2,80}}",
            rf"{_BULLET}제보\s?(?:하기|안내|전화)?\s?[:\uff1a)\]]?(?:.{{0,60}}(?:기다립니다\.?|받습니다\.?|\d{{3,4}}-\d{{4}}|@.{{3,30}}))?",
            r"(?:독자|시청자)?\s?여러분의\s.{0,40}(?:제보|의견).{0,30}(?:기다립니다|받습니다)\.?",
            # [물빛뉴스 구독하기]; 네이버에서 물빛뉴스 구독하기; 구독과 좋아요 부탁드립니다.
            r"[\[(].{0,15}(?:구독|좋아요|알림\s?설정|채널\s?추가)(?:하기)?[\])]",
            r"(?:네이버|다음|유튜브|카카오).{0,30}(?:구독하기|구독해\s?주세요|채널\s?추가하기)[.!]?",
            r"구독과\s좋아요.{0,30}",
            # 물빛신문 구독신청; 네이버에서 물빛신문 받아보기; 페이스북 트위터 공유하기; 글자 크기 조정; 기자 프로필
            r".{0,25}(?:구독\s?신청|받아\s?보기|공유하기|글자\s?크기.{0,10}|기자\s?프로필|댓글\s?(?:쓰기|보기|달기)|스크랩|프린트)",
            r"(?:좋아요|공감|추천|싫어요)\s?(?:응원\s?수|수)?\s?[\d,]*",
            r"(?:Tags?|태그|해시태그|키워드)\s?[:\uff1a]?\s?#.{1,100}|(?:#[^\s#]{1,20}\s*){2,12}",
            r".{0,15}기자의?\s다른\s(?:기사|뉴스).{0,10}|(?:\[[^\]]{0,15}(?:바로\s?가기|보내기|구독하기)\]\s?){1,4}",
            r".{0,12}(?:24시간\s)?여러분의\s.{0,20}제보를?\s.{0,12}(?:기다립니다|받습니다|환영합니다)\.?",
            # 문의: 물빛시청(02-123-4567); (이로동장 김하늘, 주무관 한지우 270-4805); 출처: 정책브리핑; PDF 첨부: …
            rf"{_BULLET}(?:문의|문의처|담당\s?(?:자|부서|과)|연락처|출처|[A-Z]{{0,4}}\s?(?:첨부|붙임|별첨)(?:\s?파일)?)"
            r"\s?(?:[:.\uff1a]|\s\d)(?!.*다\.$).{1,140}",
            r"\((?=.{0,140}\d{3,4}-\d{4}|.{0,140}☎)[^()]{4,140}\)",
            # 국제금융과: 담당자 / 사무관 김하늘; 보도자료 제공 : 가족복지과); 작 성 팀: 문화예술팀; 기관명 : 물빛학교
            r".{2,25}:\s?(?:담당자|책임자|담당)\s?/.{2,20}",
            r"(?:보도\s?자료\s?제공|자료\s?제공|작\s?성\s?[과팀자]|기관\s?명|부\s?처|담당\s?부서|관련\s?부서)\s?[:\uff1a].{1,80}",
            # 보도자료.hwpx; 1.[사진 1] 전경.jpg (1.08 MB) Hit: 1
            r".{0,120}\.(?:hwpx?|pdf|docx?|jpe?g|png|gif|zip|xlsx?)(?:\s?[(\[].{0,60})?(?:\s?Hit:?\s?\d*)?",
            # 본 저작물은 공공누리 제1유형 조건에 따라 이용할 수 있습니다.
            r".{0,150}저작물은.{0,50}(?:공공누리|출처\s?표시).{0,80}",
            # 이 기사는 인공지능의 도움을 받아 작성됐습니다.
            r"(?:이|본)\s?기사는\s.{0,80}(?:작성|제작|생성|지원|제공|수록|번역|편집).{0,30}(?:습니다|니다|됨)\.?",
        ),
    ),
    "related": BoilerplateKind(
        article=_any(
            # [관련기사] …; ▶ 관련 기사: …; 이 시각 많이 본 뉴스; 원문 보기
            rf"{_BULLET}(?:관련\s?(?:기사|뉴스|영상|링크)|이\s?시각\s?(?:많이\s?본|주요)\s?뉴스|많이\s?본\s?(?:뉴스|기사)|주요\s?뉴스"
            r"|인기\s?기사|추천\s?(?:기사|뉴스)|(?:기사\s?)?원문\s?보기|기사\s?더\s?보기|더\s?많은\s?(?:기사|뉴스)\s?보기)"
            r"(?:[\])>】▶:]|\s|$)(?!.*다\.$).{0,100}",
            # ☞ …; ▶ … 구독하기; a link alone
            r"[☞►].{1,120}",
            r"(?!.*다\.$)[▶▷].{0,80}(?:보기|가기|구독|클릭|추가|채널|제보|검색|다운로드).{0,30}",
            rf"[\[(<]?\s?(?:[^.!?]{{0,20}}[:=]\s?)?{_URL}\s?[\])>]?",
        ),
    ),
    "timestamp": BoilerplateKind(
        article=_any(
            # 입력 2024.05.01 09:30 수정 …; 2024-05-01 09:30:00 송고
            rf"[\[(<]?\s?(?:기사\s?)?(?:(?:최초|최종)\s?)?(?:입력|수정|등록|승인|업데이트|발행|게재|송고)\s?(?:일시?|시간|일자)?"
            rf"\s?[:|\uff1a]?\s?{DATE}(?!.*다\.).{{0,80}}",
            rf"{DATE}\s?(?:\([일월화수목금토]\)\s?)?(?:오전|오후)?\s?\d{{1,2}}:\d\d(?::\d\d)?(?:\s?(?:송고|입력|수정|게재))?",
        ),
    ),
    "broadcast": BoilerplateKind(
        article=_any(
            # [앵커]; ◀ 리포트 ▶; 앵커:
            rf"[\[(<【◀◁]\s?{_CUE}(?:\s?[:/].{{0,20}})?\s?[\])>】▶▷]",
            rf"{_CUE}\s?[:\uff1a]",
            # MBS 뉴스 김하늘입니다.; 지금까지 물빛에서 MBS 뉴스 김하늘이었습니다.
            rf"(?:지금까지\s)?(?:[가-힣]{{1,8}}에서\s)?[A-Za-z가-힣]{{2,8}}\s?(?:뉴스|NEWS|News)(?:룸|데스크|\d{{1,2}})?,?\s"
            rf"{NAME}(?:입니다|이었습니다|였습니다)\.?",
            r"지금까지\s.{2,40}(?:전해\s?드렸습니다|이었습니다|였습니다)\.?",
            # 김하늘 기자가 보도합니다.; 한지우 기자의 보도입니다.
            rf".{{0,30}}{NAME}\s?(?:기자|특파원)(?:가|이)\s(?:보도합니다|취재했습니다|전합니다|보도했습니다|전해\s?드립니다)\.?",
            rf".{{0,20}}{NAME}\s?(?:기자|특파원)의?\s(?:단독\s?)?(?:보도|리포트)(?:입니다|를\s보시겠습니다|를\s들어보시겠습니다)?\.?",
        ),
    ),
    "end_mark": BoilerplateKind(
        corpus=re.compile(r"[\[(<]끝[\])>]"),
        article=_any(r"[-―/(\[<]{1,2}\s?끝\s?[-―/)\]>]{1,2}", r"[-=_*~·.―─━\s]{3,}", r"[가-힣]{0,6}\s?#{1,3}"),
    ),
}
"""Kind → its lines, in the order in which they are tried."""
CORPUS_LINES = {name: kind.corpus for name, kind in KINDS.items() if kind.corpus is not None}
ARTICLE_LINES = {name: kind.article for name, kind in KINDS.items() if kind.article is not None}
# … 따고 있다. /김하늘 기자: under a picture; at the end of an article, a sentence and a byline.
CREDITED = re.compile(rf".{{5,140}}[.다습장경]\s?[/(\[]?\s?{_NAMES}\s?(?:사진|인턴|객원|선임)?\s?기자[)\]]?")
# 많이 본 뉴스; [관련기사]; ■ 이 시각 주요뉴스 TOP 10; 인기기사 1. 배우 …: but not 관련 기사가 나간 뒤 …
RELATED_HEADING = re.compile(
    rf"{_BULLET}(?:[가-힣A-Za-z]{{1,8}}\s)?"
    r"(?:(?:가장\s?)?많이\s?(?:본|읽은|찾은|댓글\s?단)\s?(?:뉴스|기사|글)"
    r"|[가-힣A-Za-z]{0,10}\s?(?:관련|연관|인기|추천|최신|다른|주요|핫|베스트|포토|헤드라인|지금\s?뜨는)\s?(?:기사|뉴스|글|이슈|클릭)"
    r"|이\s?시각\s?(?:가장\s?)?(?:주요|핫|인기|많이\s?본|관심)?\s?(?:뉴스|기사|이슈)"
    r"|(?:오늘의|실시간)\s?(?:주요|추천|인기|핫|랭킹|많이\s?본)\s?(?:뉴스|기사|이슈|검색어)?"
    r"|(?:뉴스|기사)?\s?랭킹\s?(?:뉴스|기사)?|당신이\s?좋아할\s?만한\s?(?:뉴스|콘텐츠|기사)"
    r"|(?:이\s?기사와\s?)?함께\s?(?:본|볼\s?만한|읽은|보면\s?좋은)\s?(?:뉴스|기사))"
    r"(?:\s?(?:TOP|Top|톱|BEST|베스트)\s?\d{0,3}|\s\d{1,3}(?=\s*$))?(?:\s?(?:더\s?보기|전체\s?보기|목록))?\s*[\])>】〉:▶►»+]*"
    r"\s*(?:$|(?=[①▶▷►☞▲■□◆●○•·※☆★\-–]|\d{1,2}(?:[.)위]|\s)))"
)
PORTAL_MARKS = frozenset("▶▷►☞◀")
PORTAL = re.compile(
    r"무단.{0,4}(?:전재|복제|배포|수집)|재배포|저작권자|구독하|구독\s?신청|제보하|제보를\s?(?:기다|받)|제보가\s뉴스"
)
WEAK_PORTAL = re.compile(
    r"구독|제보|바로\s?가기|보러\s?가기|기사\s?보기|채널|카카오톡|카톡|페이스북|유튜브|인스타|홈페이지|클릭|다운|친구\s?추가|네이버"
)
LONGEST_PORTAL = 600
"""Characters of the longest block under an article."""
SHORTEST_PARAGRAPH = 40
"""Characters of a sentence that ends a list of related items inside an article."""
MIN_BEFORE_RELATED = 3
"""Sentences before a list of related items that make it the end of an article."""
SHORTEST_SENTENCE = 8
"""Fewest characters of a sentence before a byline glued to it; a name may end like a sentence."""
STICKING = frozenset({"byline", "email", "copyright", "notice", "related", "end_mark"})
"""Kinds that may follow the last sentence of a line."""
HEADING = re.compile(r"[◇◆■□●○◎△▽▼▷▶★☆⊙◈▣]\s?[^◇◆■□●○]{1,60}|[<〈【\[][^<>〈〉【】\[\]]{1,30}[>〉】\]]")
# ―다음 계획은. -왜 하필 농기계였나? Q. 누가 오나요; but - items of a list, which end like sentences.
QUESTION = re.compile(
    r"[―─—]\s?.{2,150}|[-–]\s?[가-힣\"“‘'(].{1,80}(?:[나까요은는면데가]\.?|\?)|(?:Q|문)\s?[.:]\s.{4,150}"
)
FULL_STOP = re.compile(r"[.!?…][”\"’')\]]*$")
# What sticks to the last sentence begins behind an ending: 말했다./김하늘 기자, 밝혔다 김하늘 기자 sky@press.example
ENDING = re.compile(r"(?<=[다요죠까함음됨임])[.!?]?[”\"’')\]]{0,2}\s*(?=[^\s.!?])")


def segments_of(text: str) -> list[Segment]:
    """Split an article into its sentences and its boilerplate.

    Args:
        text: a whole article in composed Hangul (NFC).

    Returns:
        Segments in order, with only white space between them. A line of boilerplate is one segment.
    """
    sentences = split_article(text)
    lines = blocks_of(text)
    texts = [join_lines(text[start:end]) for start, end in lines]
    num_triangles = sum(line.startswith("▲") for line in texts)
    kinds = [_kind_of_line(line, num_triangles) for line in texts]
    last = max((k for k, kind in enumerate(kinds) if not kind), default=-1)
    for k, line in enumerate(texts):
        # A picture's caption is one sentence, and the credit a second one.
        if k < last and not kinds[k] and CREDITED.fullmatch(line) and line.count(". ") < 2:
            kinds[k] = "caption"
    found: list[Segment] = []
    cursor = 0
    for (_, end), kind in zip(lines, kinds, strict=True):
        first = cursor
        while cursor < len(sentences) and sentences[cursor].start < end:
            cursor += 1
        if kind:
            found.append(Segment(sentences[first].start, sentences[cursor - 1].end, kind))
        else:
            parts = [part for sentence in sentences[first:cursor] for part in _parts(sentence)]
            # 새 다리 놓는다 2024.05.01 09:30 (물빛=물빛통신) …: a headline in one line with the article
            if len(parts) > 1 and not parts[0].kind and parts[1].kind in OPENINGS and _is_bare(text, parts[0]):
                parts[0] = replace(parts[0], kind="headline")
            found += parts
    return _without_related(text, found)


OPENINGS = frozenset({"timestamp", "dateline"})


def _is_bare(text: str, segment: Segment) -> bool:
    return FULL_STOP.search(text[max(segment.start, segment.end - 6) : segment.end]) is None


def _without_related(text: str, segments: list[Segment]) -> list[Segment]:
    """Label what stands behind a heading of related items: 많이 본 뉴스, 관련기사.

    The items are other articles' headlines and first sentences. A list behind the greater part of an article reaches
    to its end; one before it ends with the next sentence of at least `SHORTEST_PARAGRAPH` characters.
    """
    num = sum(not segment.kind for segment in segments)
    before, is_list, is_last = 0, False, False
    found = []
    for segment in segments:
        line = text[segment.start : segment.end]
        if _opens_related(line):
            is_list, is_last = True, 2 * before >= num or before >= MIN_BEFORE_RELATED
        elif is_list and not is_last and not segment.kind:
            is_list = len(line) < SHORTEST_PARAGRAPH or FULL_STOP.search(line[-6:]) is None
        if is_list and not segment.kind:
            segment = replace(segment, kind="related")
        before += not segment.kind
        found.append(segment)
    return found


def _opens_related(line: str) -> bool:
    return RELATED_HEADING.match(line[:LONGEST_BOILERPLATE]) is not None


@functools.lru_cache(maxsize=256)  # a line that is one sentence is asked about twice
def kind_of(line: str) -> str:
    """Return the kind of boilerplate that LINE, stripped of white space, is as a whole; "" for text."""
    if len(line) > LONGEST_BOILERPLATE or is_litany(line):
        return ""
    for patterns in (CORPUS_LINES, ARTICLE_LINES):
        for kind, pattern in patterns.items():
            if pattern.fullmatch(line):
                return kind
    return ""


def _is_portal(line: str) -> bool:
    """Whether LINE is one of the blocks that portals put under an article: ▶ 구독하세요 ▶ 제보 ⓒ … 무단 전재 금지."""
    if line[:1] not in PORTAL_MARKS or len(line) > LONGEST_PORTAL:
        return False
    return PORTAL.search(line) is not None or (WEAK_PORTAL.search(line) is not None and not line.endswith("다."))


def _kind_of_line(line: str, num_triangles: int) -> str:
    """Return the kind of a line that is boilerplate as a whole; "" for one with a sentence."""
    is_portal = _is_portal(line)
    if is_portal and len(line) > LONGEST_BOILERPLATE:
        return "promotion"
    if len(line) > LONGEST_BOILERPLATE or CREDITED.fullmatch(line):
        return ""
    if line.startswith("▲"):
        if num_triangles == 1 or re.search(r"모습|ⓒ|©|[/(\[]\s?사진|제공", line):
            return "caption"
        return "" if FULL_STOP.search(line) else "list"
    kind = kind_of(line) or ("promotion" if is_portal else "")
    if kind in STICKING and not is_portal and _tail(line) is not None:
        return ""
    if not kind and HEADING.fullmatch(line) and not FULL_STOP.search(line):
        return "heading"
    return kind


def _parts(sentence: Sentence) -> Iterator[Segment]:
    """Yield a sentence, and separately the dateline before it and the byline or the like after it."""
    start, end = sentence.start, sentence.end
    tail = _tail(sentence.text)
    if tail is None and (kind := kind_of(sentence.text) or ("question" if QUESTION.fullmatch(sentence.text) else "")):
        yield Segment(start, end, kind)
        return
    text = sentence.text[: tail[0]].rstrip() if tail else sentence.text
    opening = text[:LONGEST_BOILERPLATE]
    head = None if is_litany(opening) else DATELINE.match(opening)
    if head and head.end() < len(text):
        yield Segment(start, start + len(head.group().rstrip()), "dateline")
        yield Segment(start + head.end(), start + len(text), "")
    else:
        yield Segment(start, start + len(text), "")
    if tail:
        yield Segment(start + tail[0], end, tail[1])


def _tail(text: str) -> tuple[int, str] | None:
    """Return where boilerplate after a sentence begins, and its kind."""
    for ending in ENDING.finditer(text, max(SHORTEST_SENTENCE, len(text) - LONGEST_BOILERPLATE)):
        if kind := kind_of(text[ending.end() :]):
            return ending.end(), kind
    return None


# ---- taking boilerplate out of a corpus ----


def remove_boilerplate(text: str) -> tuple[str, set[str]]:
    """Remove what newsrooms put around an article.

    Some kinds look like text elsewhere. A byline or a line with an e-mail address is removed only if the text has other
    lines, unless it is both. A line that begins with ▲ is a caption if it is the only such line; several are a list.

    Args:
        text: a text after `collapse_blanks`.

    Returns:
        The remaining text, and the kinds that were removed: `dateline` and keys of `KINDS`.
    """
    if not _is_marked(text):
        return text, set()
    lines = text.split("\n")
    is_list = sum(line.startswith("▲") for line in lines) != 1
    kinds: set[str] = set()
    kept = []
    for line in lines:
        kind = _corpus_kind(line, is_only=len(lines) == 1, is_list=is_list)
        if kind is None:
            head = DATELINE.match(line)
            kept.append(line[head.end() :] if head else line)
            kind = "dateline" if head else None
        if kind is not None:
            kinds.add(kind)
    return (collapse_blanks("\n".join(kept)), kinds) if kinds else (text, kinds)


def _is_marked(text: str) -> bool:
    return any(mark in text for mark in MARKS)


def _corpus_kind(line: str, *, is_only: bool, is_list: bool) -> str | None:
    """Return the kind of boilerplate that LINE is as a whole."""
    if len(line) > LONGEST_BOILERPLATE or not _is_marked(line):
        return None
    if line.startswith("▲") and not is_only and not is_list:
        return "caption"
    kind = next((kind for kind, pattern in CORPUS_LINES.items() if pattern.fullmatch(line)), None)
    is_doubtful = kind == "email" or (kind == "byline" and "@" not in line)
    return None if is_only and is_doubtful else kind
