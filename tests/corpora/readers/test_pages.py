"""Articles of pages: HTML, NITF, NewsML and HWPX; what is hostile or damaged is one bad record."""

from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.documents import RejectedRecord, read_documents
from corpora.readers.dates import parse_date

Write = Callable[[str, str | bytes], Path]

FIRST = "한국은행이 기준금리를 3.0%로 묶었다."
SECOND = "총재는 “물가를 더 지켜보겠다”고 말했다."
TEXT = f"{FIRST}\n{SECOND}"

PAGE = f"""<!doctype html><html><head><meta charset="euc-kr"><title>금리 동결 - 물빛일보</title>
<meta property="og:title" content="금리 동결">
<meta property="article:published_time" content="2024-12-17T09:30:00+09:00">
<meta property="article:section" content="경제">
<meta property="og:site_name" content="물빛일보"></head>
<body><nav><p>정치 경제 사회</p></nav><header><h1>금리 동결</h1></header>
<div id="articleBody"><figure><img src="a.jpg"><figcaption>17일 회의장</figcaption></figure>
<p>{FIRST}</p><script>var a = "<p>스크립트</p>";</script><p>{SECOND.replace("“", "&ldquo;")}<br></div>
<aside><p>많이 본 뉴스</p></aside><footer>물빛일보</footer></body></html>"""

NITF = f"""<?xml version="1.0" encoding="euc-kr"?>
<!DOCTYPE nitf SYSTEM "http://www.nitf.org/nitf.dtd">
<nitf><head><title>물빛통신</title><docdata>
<doc-id id-string="n1"/><date.issue norm="20241217T093000"/></docdata></head>
<body><body.head><hedline><hl1>금리 동결</hl1></hedline><byline>김하늘 기자</byline></body.head>
<body.content><p>{FIRST}</p><media><media-caption>회의장</media-caption></media>
<p>{SECOND.replace("“", "&ldquo;")}</p></body.content></body></nitf>"""

NEWSML = f"""<NewsML><NewsItem>
<Identification><NewsIdentifier><NewsItemId>n1</NewsItemId></NewsIdentifier></Identification>
<NewsComponent><NewsLines><HeadLine>금리 동결</HeadLine><ByLine>김하늘 기자</ByLine></NewsLines>
<ContentItem><DataContent><p>{FIRST}</p><p>{SECOND}</p></DataContent></ContentItem></NewsComponent></NewsItem></NewsML>"""

G2 = f"""<newsMessage xmlns="http://iptc.org/std/nar/2006-10-01/"><itemSet>
<newsItem guid="n1"><itemMeta><versionCreated>2024-12-17T09:30:00+09:00</versionCreated></itemMeta>
<contentMeta><headline>금리 동결</headline><by>김하늘 기자</by></contentMeta>
<contentSet><inlineXML><html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head>
<body><p>{FIRST}</p><p>{SECOND}</p></body></html></inlineXML></contentSet></newsItem>
<newsItem guid="n2"><contentMeta><headline>둘째</headline></contentMeta>
<contentSet><inlineData>{FIRST}</inlineData></contentSet></newsItem></itemSet></newsMessage>"""

BOMB = """<!DOCTYPE nitf [<!ENTITY a "하하하하하하하하"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<nitf><body><body.content><p>&b;</p></body.content></body></nitf>"""
OUTSIDE = """<!DOCTYPE nitf [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<nitf><body><body.content><p>&a;</p></body.content></body></nitf>"""


def test_a_page_gives_its_article_and_nothing_of_what_is_around_it(write: Write) -> None:
    (document,) = read_documents(write("a.html", PAGE.encode("cp949")))
    assert (document.title, document.text, document.id) == ("금리 동결", TEXT, "a.html:1")
    assert document.date == "2024-12-17T09:30:00+09:00"
    assert (document.section, document.publisher) == ("경제", "물빛일보")
    plain = "<html><body><h1>제목</h1><p>첫 줄이다.</p><p>둘째 줄이다.</p></body></html>"
    (document,) = read_documents(write("b.htm", plain))
    assert (document.title, document.text) == ("제목", "첫 줄이다.\n둘째 줄이다.")


def test_agencies_give_title_text_and_date(write: Write, subtests: pytest.Subtests) -> None:
    for name, content in (("nitf", NITF.encode("cp949")), ("newsml", NEWSML), ("g2", G2)):
        with subtests.test(form=name):
            document = next(read_documents(write("a.xml", content)))
            assert (document.id, document.title, document.text) == ("n1", "금리 동결", TEXT)
            assert document.byline == "김하늘 기자"
            assert document.date.startswith("2024") or name == "newsml"
    assert [document.title for document in read_documents(write("a.xml", G2))] == ["금리 동결", "둘째"]


RSS = """<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:media="http://search.yahoo.com/mrss/"><channel><title>물빛일보</title><description>모든 기사</description>
<item><media:title>사진</media:title><media:content url="a.jpg"><media:description>사진 설명</media:description>
</media:content><title>금리 동결</title><link>https://example.org/1</link><guid>n1</guid><category>경제</category>
<dc:creator>김하늘 기자</dc:creator><pubDate>Tue, 01 Jun 2021 09:30:00 +0900</pubDate><description>짧게</description>
<content:encoded><![CDATA[<p>금리를 묶었다.</p><p>물가를 더 본다 &amp; 기다린다.</p>]]></content:encoded></item>
<item><title>둘째</title><description>&lt;b&gt;첫눈&lt;/b&gt;이 왔다.</description></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>물빛일보</title><id>feed</id><entry><title>금리 동결</title>
<link rel="alternate" href="https://example.org/1"/><id>n1</id><category term="경제"/><updated>2021-06-02</updated>
<author><name>김하늘 기자</name></author><published>2021-06-01T09:30:00+09:00</published><summary>짧게</summary>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>금리를 묶었다.</p>
<p>물가를 더 본다 &amp; 기다린다.</p></div></content></entry>
<entry><title>둘째</title><summary>첫눈이 왔다.</summary></entry></feed>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel/>
<item><title>금리 동결</title><description>금리를 묶었다.</description></item></rdf:RDF>"""


def test_feeds_give_their_articles(write: Write, subtests: pytest.Subtests) -> None:
    for name, content in (("a.rss", RSS), ("a.xml", RSS), ("a.atom", ATOM), ("b.xml", ATOM)):
        with subtests.test(name=name):
            first, second = read_documents(write(name, content))
            assert (first.id, first.title, first.section, first.byline) == ("n1", "금리 동결", "경제", "김하늘 기자")
            assert [line for line in first.text.split("\n") if line] == ["금리를 묶었다.", "물가를 더 본다 & 기다린다."]
            assert first.url == "https://example.org/1"
            assert parse_date(first.date) == "2021-06-01T09:30:00+09:00"
            assert (second.title, second.text) == ("둘째", "첫눈이 왔다.")
    assert [document.text for document in read_documents(write("rdf.xml", RDF))] == ["금리를 묶었다."]


def test_hostile_and_damaged_pages_are_one_bad_record_each(write: Write, subtests: pytest.Subtests) -> None:
    for name, content, reason in (
        ("bomb.xml", BOMB, "EntitiesForbidden"),
        ("outside.xml", OUTSIDE, "EntitiesForbidden"),
        ("cut.xml", NITF[:200], "not well-formed"),
        ("other.xml", "<urlset><item/></urlset>", "is no NITF"),
        ("feed.rss", "<rss><item/></rss>", "no text column"),
        ("empty.html", "<html><body></body></html>", "no text column"),
        ("bytes.html", b"\xff\xfe\xfa", "not"),
        ("a.hwpx", b"PK", "not a zip archive"),
    ):
        with subtests.test(name=name):
            rejected: list[RejectedRecord] = []
            assert list(read_documents(write(name, content), rejected=rejected)) == []
            assert len(rejected) == 1
            assert reason in rejected[0].reason
