"""The demo: the tools of the suite in a browser.

    make demo
    streamlit run apps/demo.py

It listens on this machine only, collects no usage statistics and stores no text. `PRESSBERT_MODELS` names folders of
further models, `PRESSBERT_REPORTS` the folder of a leaderboard; see docs/demo.md.
"""

import http
import os
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

# With small models on a busy machine, spinning threads slow each other down tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The tokenizers' own threads do not survive a fork, and warn on every one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not __package__:
    # Run by path, Python puts apps/ on the path and not the root that holds the five packages.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import streamlit as st
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse

from apps.demo_pages.comment_models import COMMENT_MODELS
from apps.demo_pages.frame import PageContext, choose_language, choose_model, shared_models, show_loaded
from apps.demo_pages.inputs import MAX_UPLOAD_MB
from corpora.foundation.files import package_path
from corpora.foundation.texts import Texts

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from downstream.encoders.folder import Kind

STYLE = package_path("apps", "demo_pages", "style.css")


@dataclass(frozen=True)
class DemoPage:
    """A page of the demo."""

    name: str
    """Name of its module in `apps.demo_pages`, of its texts, and in the address; the first page has none there."""
    icon: str
    kind: "Kind | None"
    """Kind of its models; None: it needs none."""
    tasks: tuple[str, ...] = ()
    """Tasks whose models are offered first."""


PAGES = (
    DemoPage("summary", ":material/summarize:", "summarizer"),
    DemoPage("desk", ":material/edit_document:", None),
    DemoPage("stories", ":material/newspaper:", "embedder"),
    DemoPage("comments", ":material/forum:", "classifier", tuple(entry.task for entry in COMMENT_MODELS)),
    DemoPage("moderation", ":material/shield:", None),
    DemoPage("signals", ":material/campaign:", None),
    DemoPage("answers", ":material/quiz:", "reader"),
    DemoPage("blanks", ":material/edit_note:", "encoder"),
    DemoPage("writing", ":material/spellcheck:", None),
    DemoPage("leaderboard", ":material/leaderboard:", None),
)


def draw(first: str = PAGES[0].name) -> None:
    """Draw the requested page.

    Args:
        first: name of the page that is shown if the address names none.
    """
    st.set_page_config(page_title="PressBERT", page_icon="📰", layout="wide")
    st.html(STYLE)
    texts = choose_language()
    st.html(f"<style>{browser_texts(texts)}</style>")
    pages = [
        st.Page(
            partial(run_page, page, texts),
            title=texts(f"{page.name}.title"),
            icon=page.icon,
            url_path=page.name,
            default=page.name == first,
        )
        for page in PAGES
    ]
    st.navigation(pages).run()


def run_page(page: DemoPage, texts: Texts) -> None:
    """Draw one page with its sidebar."""
    models = shared_models()
    choice = choose_model(texts, page.kind, page.tasks) if page.kind is not None else None
    # Imported on demand: the first page does not wait for the imports of others.
    import_module(f"apps.demo_pages.{page.name}").show(PageContext(texts, models, choice))
    with st.sidebar:
        # Last, so that it lists what the page has just loaded.
        show_loaded(texts, models)


def browser_texts(texts: Texts) -> str:
    """Return CSS that translates Streamlit's file field, which is English only."""
    drop, limit, refused = (
        texts(key, limit=MAX_UPLOAD_MB) for key in ("upload.drop", "upload.limit", "upload.refused")
    )
    return (
        f'[data-testid="stFileUploaderDropzone"] {{ --pb-drop: "{drop}"; --pb-limit: "{limit}"; }}'
        f'[data-testid="stFileUploader"] {{ --pb-refused: "{refused}"; }}'
    )


class RootAddress:
    """Gives the browser the address of the demo's root.

    Otherwise Streamlit's script looks for the server below the address of the page that was opened, and logs two
    answers with 404 for each of them.
    """

    def __init__(self, app: "ASGIApp") -> None:
        """Wrap APP."""
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Add a script to pages; let everything else pass."""
        name = scope["path"].strip("/") if scope["type"] == "http" and scope["method"] == "GET" else None
        if name == PAGES[0].name:
            # The first page has no address of its own.
            root = "../" if scope["path"].endswith("/") else "./"
            query = "?" + scope["query_string"].decode("latin-1") if scope["query_string"] else ""
            await RedirectResponse(root + query)(scope, receive, send)
            return
        if name is None or name not in {"", *(page.name for page in PAGES)}:
            await self._app(scope, receive, send)
            return
        start: Message = {}
        parts: list[bytes] = []

        async def answer(message: "Message") -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                body = with_root(b"".join(parts))
                headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
                if start["status"] == http.HTTPStatus.OK:
                    headers.append((b"content-length", str(len(body)).encode()))
                await send({**start, "headers": headers})
                await send({"type": "http.response.body", "body": body})

        # A packed page could not be changed.
        plain = [pair for pair in scope["headers"] if pair[0].lower() != b"accept-encoding"]
        await self._app({**scope, "headers": plain}, receive, answer)


def with_root(page: bytes) -> bytes:
    """Return an HTML page with a script that names the root: the page's address without the name of a page."""
    names = "|".join(page.name for page in PAGES)
    root = f'location.origin+location.pathname.replace(/\\/(?:{names})?\\/?$/,"/")'
    return page.replace(b"<head>", f"<head><script>window.__streamlit={{BACKEND_BASE_URL:{root}}}</script>".encode(), 1)


# `streamlit run` serves this application, which runs this file as the script of every visitor.
app = st.App(Path(__file__).resolve(), middleware=[Middleware(RootAddress)])

if __name__ == "__main__":
    draw()
