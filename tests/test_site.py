"""The site: every guide is in its navigation in both languages, and what `make site` builds has no broken links.

`make site` gives the folder of the built site in `SITE`; without it the built pages are not looked at.
"""

import functools
import http.server
import os
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FETCHED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src", "video": "src"}
"""Elements that a browser fetches by itself, with the attribute of the address."""


class Page(HTMLParser):
    """Links, fetched addresses and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHED and FETCHED[tag] in values and values.get("rel") not in {"canonical", "alternate"}:
            self.fetched.append(values[FETCHED[tag]])


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder of the built site, or skip."""
    if not (folder := os.environ.get("SITE")):
        pytest.skip("make site builds the pages that this test looks at")
    return (ROOT / folder).resolve()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the built site on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def config() -> Any:
    class Loader(yaml.SafeLoader):
        """Reads the tags that MkDocs' file has, as what they hold."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, _, node: loader.construct_mapping(node))
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def listed(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    for entry in entries if isinstance(entries, list) else entries.values() if isinstance(entries, dict) else ():
        yield from listed(entry)


def test_every_guide_is_in_the_navigation_in_both_languages() -> None:
    pages = list(listed(config()["nav"]))
    assert len(set(pages)) == len(pages)
    assert [page for page in pages if not (ROOT / "docs" / page).is_file()] == []
    guides = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    guides |= {f"api/{path.name}" for path in (ROOT / "docs" / "api").glob("*.md")}
    assert guides - set(pages) == set()
    korean, english = (set(listed(part)) for part in list(config()["nav"])[:2])
    assert {page.replace(".md", ".en.md") for page in korean} == english


def test_the_theme_fetches_no_fonts_and_search_knows_both_languages() -> None:
    found = config()
    assert found["theme"]["font"] is False
    assert found["strict"] is True
    [search] = [plugin["search"] for plugin in found["plugins"] if "search" in plugin]
    assert search["lang"] == ["ko", "en"]


def test_api_pages_name_what_exists() -> None:
    for path in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^::: ([\w.]+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            parts = name.split(".")
            folders = [(n, ROOT.joinpath(*parts[:n])) for n in range(len(parts), 0, -1)]
            files = [(n, file) for n, path in folders for file in (path.with_suffix(".py"), path / "__init__.py")]
            length, module = next((n, file) for n, file in files if file.is_file())
            rest = parts[length:]
            source = module.read_text(encoding="utf-8")
            is_defined = not rest or re.search(rf"^(def|class) {rest[0]}\b|^    {rest[0]},$", source, re.MULTILINE)
            assert is_defined, f"{path.name}: {name} is not defined in {module.name}"


def test_the_built_site_is_whole_and_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if "reports" not in path.parts}
    assert len(pages) >= 30
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        broken += [f"{path.name} fetches {address}" for address in page.fetched if urlsplit(address).netloc]
        for address in (*page.links, *page.fetched):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {address}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {address} (no such heading)")
    assert broken == []
    assert not [path for path in site.rglob("*.css") if "fonts.googleapis" in path.read_text(encoding="utf-8")]


def test_search_finds_korean_and_english_words_in_a_browser(address: str, chromium: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'pressbert[docs]' to run this test")
    with playwright.sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        foreign: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: foreign.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for start, word, found in (
            ("", "요약", "summarization/"),
            ("", "혐오", "moderation/"),
            ("index.en/", "summaries", "summarization.en/"),
            ("index.en/", "offensive", "moderation.en/"),
        ):
            page.goto(address + start)
            page.fill(".md-search__input", word)
            # The search reads its field when a key is released, which filling it does not do.
            page.press(".md-search__input", "End")
            links = page.locator(".md-search-result__item > a")
            links.first.wait_for(state="attached", timeout=30_000)
            places = [link.get_attribute("href") or "" for link in links.all()]
            assert any(urlsplit(place).path.endswith(f"/{found}") for place in places), (word, places)
        assert errors == []
        assert [url for url in foreign if not url.startswith((address, "data:", "blob:"))] == []
