"""The demo as visitors see it: a real server, and headless Chromium.

With `PRESSBERT_SCREENSHOTS=FOLDER` the tests write pictures of the pages there. Those in docs/screenshots were made
with an empty folder as `PRESSBERT_MODELS`, which leaves the bundled models, and docs/reports as `PRESSBERT_REPORTS`.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from apps.demo import PAGES
from apps.summarize import read_items, to_record
from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from corpora.foundation.texts import Texts
from downstream.summarize import summarize

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'pressbert[test]'")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
TIMEOUT_MS = 180_000
BREATH_MS = 250
"""From a click to the moment the page knows that it has work to do."""
texts = Texts("ko", "demo")
ARTICLE = next(iter(read_documents(SAMPLE_ROOT / "news.jsonl")))


@pytest.fixture(scope="module")
def server(model_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the demo as its users do, with the tiny models; returns its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("demo-server")
    models = os.environ.get("PRESSBERT_MODELS") or str(model_root)
    reports = os.environ.get("PRESSBERT_REPORTS") or str(folder / "reports")
    environment = os.environ | {"PRESSBERT_MODELS": models, "PRESSBERT_REPORTS": reports, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "apps" / "demo.py")]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [*command, "--server.port", str(port), "--server.headless", "true"],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_healthy(port, process)
            yield f"http://localhost:{port}"
        finally:
            process.terminate()
            process.wait(20)
    # What the web server says of connections that end is not ours.
    assert str(ROOT / "apps") not in (folder / "log.txt").read_text(encoding="utf-8")


def wait_until_healthy(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert process.poll() is None, "the server has ended"
        connection = http.client.HTTPConnection("localhost", port, timeout=2)
        try:
            connection.request("GET", "/_stcore/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
        finally:
            connection.close()
    raise AssertionError("the server does not answer")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield launched
        launched.close()


@dataclass
class Visitor:
    """A browser of somebody's own, and what went wrong in it."""

    page: Any
    address: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen to everything."""
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.on("response", self._on_response)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _on_response(self, response: Any) -> None:
        if response.status >= 400:
            self.errors.append(f"{response.status} {response.url}")

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def open(self, page: str = "", **query: str) -> "Visitor":
        """Go to a page and wait until it is drawn."""
        settings = "&".join(f"{key}={value}" for key, value in query.items())
        self.page.goto(f"{self.address}/{page}?{settings}")
        self.page.wait_for_selector("h1")
        return self.idle()

    def idle(self) -> "Visitor":
        """Wait until the page is drawn and no work is in progress."""
        self.page.wait_for_function(
            "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
            " && !document.querySelector('[data-testid=stProgress], [data-testid=stSpinner]')"
        )
        return self

    def press(self, label: str) -> "Visitor":
        """Press a button."""
        self.page.get_by_role("button", name=label).first.click()
        self.page.wait_for_timeout(BREATH_MS)
        return self.idle()

    def write(self, label: str, text: str) -> None:
        """Write into a field and leave it, which sends what it holds.

        A click that makes the field lose its focus would send it, too, but is itself lost if the page is drawn anew
        while the button is down.
        """
        written = self.page.get_by_label(label, exact=True).first
        written.fill(text)
        written.blur()
        self.page.wait_for_timeout(BREATH_MS)
        self.idle()

    def upload(self, name: str, content: bytes) -> "Visitor":
        """Put a file into the page's field."""
        payload = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        self.page.locator("input[type=file]").first.set_input_files(payload)
        return self

    def texts(self, selector: str) -> list[str]:
        """Return what is shown of elements."""
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]

    def picture(self, name: str) -> None:
        """Write a picture of the page if pictures are wanted."""
        folder = os.environ.get("PRESSBERT_SCREENSHOTS")
        if folder:
            size = self.page.viewport_size
            main = self.page.locator("[data-testid=stMain]")
            main.evaluate("element => element.scrollTo(0, 0)")
            height = main.evaluate("element => element.scrollHeight")
            self.page.set_viewport_size({"width": size["width"], "height": min(height, 1500)})
            self.page.wait_for_timeout(600)
            path = Path(folder) / f"{name}.png"
            self.page.screenshot(path=path)
            # A quarter of the size, and nothing to be seen of it.
            Image.open(path).convert("RGB").quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)
            self.page.set_viewport_size(size)


@pytest.fixture
def visit(server: str, browser: Any) -> Iterator[Callable[..., Visitor]]:
    """Return a function that gives a visitor with a browser of their own; at the end nobody has met an error."""
    visitors: list[Visitor] = []

    def come(width: int = 1280, height: int = 900) -> Visitor:
        context = browser.new_context(
            viewport={"width": width, "height": height}, locale="ko-KR", accept_downloads=True
        )
        visitors.append(Visitor(context.new_page(), server))
        return visitors[-1]

    yield come
    for visitor in visitors:
        assert visitor.errors == []
        # Telemetry is off, and nothing else is fetched from anywhere.
        assert [url for url in visitor.requests if not url.startswith((server, "data:", "blob:"))] == []
        visitor.page.context.close()


def test_a_pasted_article_is_summarised_and_highlighted(visit: Callable[..., Visitor]) -> None:
    visitor = visit().open()
    visitor.write(texts("summary.text"), ARTICLE.text)
    visitor.write(texts("summary.headline"), ARTICLE.title)
    visitor.press(texts("summary.go"))
    visitor.page.wait_for_selector("mark.pb-chosen")
    expected = [s.text for s in summarize(ARTICLE.text, 3, title=ARTICLE.title).sentences]
    assert [text.lstrip("①②③") for text in visitor.texts("mark.pb-chosen")] == expected
    background = visitor.page.locator("mark.pb-chosen").first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert background not in ("rgba(0, 0, 0, 0)", "transparent")
    assert len(visitor.texts(".pb-reason")) == 3
    visitor.picture("summary")


def test_a_file_makes_the_round(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    lines = [
        {"id": "가", "title": "", "text": unicodedata.normalize("NFD", ARTICLE.text)},
        {"id": "나", "title": "제목", "text": "시가 다리를 놓았다. 주민은 반겼다. 시는 내년에 길을 넓힐 계획이다."},
    ]
    path = tmp_path / "기사.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    visitor = visit().open(sentences="2").upload(path.name, path.read_bytes())
    visitor.press(texts("summary.all", count=2))
    with visitor.page.expect_download() as caught:
        visitor.page.get_by_role("button", name=texts("summary.download_all", count=2)).click()
    got = [json.loads(line) for line in Path(caught.value.path()).read_text(encoding="utf-8").splitlines()]
    items = list(read_items([str(path)]))
    expected = [json.loads(json.dumps(to_record(i, summarize(i.text, 2, title=i.title)))) for i in items]
    assert got == [record | {"source": path.name} for record in expected]
    for record, line in zip(got, lines, strict=True):
        assert all(line["text"][s["start"] : s["end"]] == s["text"] for s in record["sentences"])


def test_the_titles_of_a_day_draw_their_map(visit: Callable[..., Visitor], titles: Callable[[int], list[str]]) -> None:
    visitor = visit().open("stories", view=texts("stories.view_map"))
    visitor.upload("오늘.txt", "\n".join(titles(500)).encode())
    visitor.page.wait_for_selector("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg")
    visitor.idle()
    labels, values = (visitor.texts(f"[data-testid=stMetric{part}]") for part in ("Label", "Value"))
    figures = dict(zip(labels, values, strict=True))
    assert figures[texts("stories.articles")] == "500"
    # Ten subjects, each with ten actors: a story is a subject, a subject with an actor, or between the two.
    assert 10 <= int(figures[texts("stories.stories")]) <= 100
    drawn = visitor.page.locator("[data-testid=stVegaLiteChart]").first.screenshot()
    assert len(drawn) > 20_000  # an empty chart is a few kilobytes
    visitor.picture("stories-map")
    visitor.page.get_by_role("radio", name=texts("stories.view_list")).click()
    visitor.page.wait_for_selector(".pb-story")
    visitor.idle()
    visitor.press(texts("stories.pin"))
    assert texts("stories.pinned") in visitor.texts(".pb-pin")
    visitor.press(texts("stories.undo_what", what=texts("edit.pin")))
    assert visitor.texts(".pb-pin") == []
    with visitor.page.expect_download() as caught:
        visitor.page.get_by_role("button", name=texts("download.json")).click()
    saved = json.loads(Path(caught.value.path()).read_text(encoding="utf-8"))
    assert (saved["num_articles"], saved["source"]) == (500, "오늘.txt")
    visitor.picture("stories")


def test_a_hostile_article_neither_runs_nor_breaks_anything(visit: Callable[..., Visitor]) -> None:
    bait = (
        "<script>window.caught = 1</script><img src=x onerror='window.caught = 2'>"
        "<a href='javascript:window.caught=3'>눌러</a> ![그림](http://evil.example/x.png) 😀👩‍👩‍👧‍👦 \u202e\u0000"
    )
    sentence = f"{unicodedata.normalize('NFD', '시의회가 예산을 의결했다')} {bait} 고 시장이 말했다. "
    visitor = visit().open()
    visitor.write(texts("summary.text"), (sentence * 200)[:30_000])
    visitor.write(texts("summary.headline"), bait)
    visitor.press(texts("summary.go"))
    visitor.page.wait_for_selector("mark.pb-chosen")
    assert_harmless(visitor)
    # Not pasted: a field takes a minute to lay out so much, whoever's page it is on.
    visitor.upload("큰 <b>기사</b>.txt", (sentence * 6000)[:1_000_000].encode())
    visitor.page.wait_for_selector(".pb-omitted")
    assert_harmless(visitor.idle())
    # It continues to work.
    visitor.press("벼리시").page.wait_for_selector("text=본회의를 열어 총 1조3384억")
    assert len(visitor.texts("mark.pb-chosen")) == 3


def assert_harmless(visitor: Visitor) -> None:
    assert "<script>" in visitor.texts(".pb-paper")[0]
    assert visitor.page.evaluate("() => window.caught") is None
    assert visitor.page.locator(".pb-paper img, .pb-paper script, .pb-paper a, .pb-summary img").count() == 0


def test_a_wrong_file_gets_its_message(visit: Callable[..., Visitor]) -> None:
    for name, content, expected in [
        ("사진.png", b"\x89PNG\r\n\x1a\n", "읽을 수 없는 형식"),
        ("깨진글.txt", b"\xff\xff\xff", "글자를 읽을 수 없습니다"),
        ("빈.csv", b"", "내용이 없습니다"),
    ]:
        visitor = visit().open().upload(name, content)
        alert = visitor.page.locator("[data-testid=stAlert]")
        alert.wait_for()
        assert expected in alert.inner_text(), name


def test_an_oversized_file_is_refused_in_korean(visit: Callable[..., Visitor]) -> None:
    visitor = visit().open().upload("큰.txt", b"a" * 21_000_000)
    visitor.page.wait_for_selector("[data-testid=stFileChip][aria-invalid=true]")
    shown = visitor.page.locator("[data-testid=stFileUploader]").evaluate("e => getComputedStyle(e, '::after').content")
    assert texts("upload.refused", limit=20) in shown


def test_two_visitors_do_not_see_each_others_texts(visit: Callable[..., Visitor]) -> None:
    first, second = visit().open(), visit().open()
    for visitor, secret in ((first, "하나만의 비밀 문장이다."), (second, "둘만의 비밀 문장이다.")):
        visitor.write(texts("summary.text"), f"{secret} 다른 문장도 있다. 끝 문장이다.")
    for visitor in (first, second):
        visitor.press(texts("summary.go")).page.wait_for_selector(".pb-summary")
    body = [visitor.page.content() for visitor in (first, second)]
    assert "하나만의 비밀" in body[0]
    assert "둘만의 비밀" in body[1]
    assert "둘만의 비밀" not in body[0]
    assert "하나만의 비밀" not in body[1]


def test_the_other_pages_do_their_work(visit: Callable[..., Visitor]) -> None:
    visitor = visit().open("comments")
    visitor.press("돈과 시간이")
    assert visitor.texts(".pb-value")
    visitor.picture("comments")
    visitor.page.get_by_role("link", name=texts("answers.title")).click()
    visitor.page.wait_for_selector("text=" + texts("answers.lead")[:20])
    visitor.idle().press("큰마루섬")
    assert visitor.texts(".pb-answer-text")
    visitor.picture("answers")
    visitor.page.get_by_role("link", name=texts("blanks.title")).click()
    visitor.page.wait_for_selector("text=" + texts("blanks.lead")[:20])
    visitor.idle().press("이 영화 정말")
    assert len(visitor.texts("mark.pb-filled")) == 3
    visitor.picture("blanks")
    visitor.page.get_by_role("link", name=texts("leaderboard.title")).click()
    visitor.page.wait_for_selector(".pb-board")
    visitor.idle()
    assert "kpfBERT" in visitor.texts(".pb-board")[0]
    visitor.picture("leaderboard")


def test_drafts_comments_and_signals_are_looked_at_on_wide_and_narrow_screens(visit: Callable[..., Visitor]) -> None:
    for width in (1280, 390):
        for page, button, needed in (
            ("desk", texts("desk.example"), texts("desk.bullets")),
            ("moderation", "이런", texts("moderation.softened")),
            ("signals", texts("signals.example"), texts("signal.critical_quote")),
        ):
            visitor = visit(width).open(page)
            visitor.press(button).page.wait_for_selector(f"text={needed}")
            main = visitor.page.locator("[data-testid=stMain]")
            assert main.evaluate("e => e.scrollWidth - e.clientWidth") <= 1, (page, width)
            visitor.picture(f"{page}-{width}")


def test_an_update_is_compared_with_the_keyboard(visit: Callable[..., Visitor]) -> None:
    visitor = visit().open("desk")
    visitor.page.get_by_role("tab", name=texts("desk.update")).press("Enter")
    for label, text in (("desk.old", "시는 3일 다리를 연다."), ("desk.new", "시는 5일 다리를 연다.")):
        visitor.page.get_by_label(texts(label), exact=True).fill(text)
    visitor.page.keyboard.press("Tab")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_selector(".pb-changes")
    assert "5일" in visitor.texts(".pb-changes")[0]


def test_the_address_brings_back_page_settings_and_language(visit: Callable[..., Visitor]) -> None:
    visitor = visit().open(sentences="5", lang="English")
    assert visitor.texts("h1") == ["Summaries"]
    visitor.press("벼리시").page.wait_for_selector("mark.pb-chosen")
    assert len(visitor.texts("mark.pb-chosen")) == 5
    visitor.page.get_by_role("radio", name="한국어").click()
    visitor.page.wait_for_selector(f"h1:has-text('{texts('summary.title')}')")
    assert "sentences=5" in visitor.page.url
    assert "lang" not in visitor.page.url


def test_every_page_opens_by_its_address_without_an_error(visit: Callable[..., Visitor]) -> None:
    visitor = visit()
    for demo_page in PAGES:
        for address in (demo_page.name, f"{demo_page.name}/"):
            visitor.open(address)
            assert visitor.texts("h1") == [texts(f"{demo_page.name}.title")], address
            assert visitor.errors == [], address
            shown = "" if demo_page is PAGES[0] else demo_page.name
            assert visitor.page.url.partition("?")[0].rstrip("/") == f"{visitor.address}/{shown}".rstrip("/"), address


def test_a_story_is_split_and_whole_again(visit: Callable[..., Visitor], titles: Callable[[int], list[str]]) -> None:
    visitor = visit().open("stories")
    visitor.upload("오늘.txt", "\n".join(titles(40)).encode())
    visitor.page.wait_for_selector(".pb-story")
    visitor.idle()
    before = visitor.texts(".pb-story h3")
    visitor.press(texts("stories.edit"))
    visitor.press(texts("stories.split"))
    assert len(visitor.texts(".pb-story h3")) == len(before) + 1
    with visitor.page.expect_download() as caught:
        visitor.page.get_by_role("button", name=texts("download.json")).click()
    saved = json.loads(Path(caught.value.path()).read_text(encoding="utf-8"))
    assert len(saved["stories"]) == len(before) + 1
    visitor.press(texts("stories.undo_what", what=texts("edit.split")))
    assert visitor.texts(".pb-story h3") == before


def test_it_can_be_used_with_the_keyboard(visit: Callable[..., Visitor]) -> None:
    visitor = visit().open()
    area = visitor.page.get_by_label(texts("summary.text"), exact=True).first
    area.focus()
    visitor.page.keyboard.insert_text(ARTICLE.text)
    visitor.page.keyboard.press("Tab")
    visitor.page.keyboard.press("Tab")
    focused = visitor.page.evaluate("() => document.activeElement.innerText")
    assert texts("summary.go") in focused
    outline = visitor.page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_selector("mark.pb-chosen")
    visitor.idle()


def test_nothing_is_cut_off_on_a_phone_or_at_double_size(visit: Callable[..., Visitor]) -> None:
    for width, height, name in [(390, 844, "summary-phone"), (640, 450, "summary-zoom-200")]:
        # At 200 % zoom a window of 1280 × 900 has room for 640 × 450 pixels of the page.
        visitor = visit(width, height).open()
        visitor.press("벼리시")
        main = visitor.page.locator("[data-testid=stMain]")
        assert main.evaluate("e => e.scrollWidth - e.clientWidth") <= 1, width
        paper = visitor.page.locator(".pb-paper").first
        assert paper.evaluate("e => e.getBoundingClientRect().right <= window.innerWidth"), width
        visitor.picture(name)
