"""The frame of every page: language, choice of model and runtime, loaded models, errors, background jobs."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from apps.demo_pages.inputs import MAX_UPLOAD_MB, InputError, ReadFile, explain, explain_rejected
from apps.demo_pages.marking import literal
from apps.demo_pages.model_cache import DEFAULT, MODEL_FREE, RUNTIMES, ModelCache, ModelChoice, resident_bytes
from apps.demo_pages.work import Job, Progress
from corpora.documents import RejectedRecord
from corpora.foundation.errors import CheckpointError, SuiteError
from corpora.foundation.texts import LANGUAGES, Texts
from downstream.encoders.folder import BUNDLED, Kind, ModelFolder, find_models
from downstream.task import get_task

T = TypeVar("T")
MODELS = "PRESSBERT_MODELS"
"""Environment variable: folders that are or hold models, separated as in PATH."""
LETTERS = "letters"
FINETUNED: tuple[Kind, ...] = ("classifier", "reader")
POLL_S = 0.8
FIRST_LOOK_S = 0.3
"""Seconds within which a job that finishes is shown without a progress bar."""
SHOWN_REJECTED = 5
MEDIA_TYPES = {
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "txt": "text/plain",
}


@st.cache_resource(show_spinner=False)
def shared_models() -> ModelCache:
    """Return the cache that all sessions of this process share."""
    return ModelCache()


@dataclass(frozen=True)
class PageContext:
    """The arguments of a page."""

    texts: Texts
    models: ModelCache
    choice: ModelChoice | None
    """The chosen model of the page's kind; None if there is none."""

    @contextmanager
    def model(self) -> Iterator[Any]:
        """Lend the chosen model to the page, with a spinner while it is loaded.

        Raises:
            SuiteError: it cannot be loaded.
        """
        assert self.choice is not None
        if not self.models.has(self.choice):
            with st.spinner(literal(self.texts("model.loading", name=self.choice.name)), show_time=True), self.borrow():
                pass
        with self.borrow() as model:
            yield model

    def load(self) -> bool:
        """Load the chosen model before a job starts, whose progress polling would slow the loading down.

        Returns:
            Whether it is loaded; if not, the page shows the error.
        """
        try:
            with self.model():
                return True
        except SuiteError as error:
            show_error(error, self.texts)
            return False

    def borrow(self) -> AbstractContextManager[Any]:
        """Lend the chosen model to a job, which cannot draw."""
        assert self.choice is not None
        return self.models.use(self.choice)


# ---- sidebar ----


def choose_language() -> Texts:
    """Show the language switch."""
    language = st.sidebar.segmented_control(
        "언어 · Language",
        LANGUAGES,
        default=LANGUAGES[0],
        required=True,
        format_func=dict(zip(LANGUAGES, ("한국어", "English"), strict=True)).__getitem__,
        key="lang",
        bind="query-params",
    )
    return Texts(language or LANGUAGES[0], "demo")


def choose_model(texts: Texts, kind: Kind, tasks: Sequence[str] = ()) -> ModelChoice | None:
    """Show the choice of model and runtime; returns None if there is no model for the page.

    Args:
        texts: of the visitor's language.
        kind: of the models.
        tasks: official tasks whose models are offered first, in this order.
    """
    found = [model for model in find_models(model_folders()) if model.kind == kind]
    if tasks:
        found.sort(key=lambda model: _rank(model, tasks))
    models = {str(model.path): model for model in found}
    options = [*models, *([LETTERS] if kind in MODEL_FREE else [])]
    with st.sidebar:
        st.subheader(texts("sidebar.model"))
        if options:
            chosen = st.selectbox(
                texts(f"kind.{kind}"),
                options,
                format_func=lambda folder: _model_title(models.get(folder), texts),
                key=f"{kind}-model",
                bind="query-params",
            )
            runtime = st.selectbox(
                texts("sidebar.runtime"),
                RUNTIMES,
                format_func=lambda word: _runtime_title(word, texts),
                key="runtime",
                bind="query-params",
                help=texts("sidebar.runtime_help"),
                disabled=kind == "encoder" or chosen == LETTERS,
            )
        _add_folder(texts)
    if not options:
        return None
    return ModelChoice(kind, None if chosen == LETTERS else Path(chosen), DEFAULT if kind == "encoder" else runtime)


def _rank(model: ModelFolder, tasks: Sequence[str]) -> int:
    """Return the position of a model's task among tasks; the last for others."""
    name = get_task(model.task_name).official_name if model.kind in FINETUNED else ""
    return tasks.index(name) if name in tasks else len(tasks)


def _runtime_title(word: str, texts: Texts) -> str:
    return texts("sidebar.default_runtime") if word == DEFAULT else word


def model_folders() -> list[Path]:
    """Return the folders that are or hold models, the bundled ones first."""
    named = [Path(name) for name in os.environ.get(MODELS, "").split(os.pathsep) if name]
    return [BUNDLED, *named, *st.session_state.get("added-folders", [])]


def _model_title(model: ModelFolder | None, texts: Texts) -> str:
    if model is None:
        return texts("model.letters")
    size = f"{model.size_bytes / 1e6:.1f} MB" if model.size_bytes >= 100_000 else f"{model.size_bytes / 1e3:.0f} KB"
    facts = " · ".join(fact for fact in (model.task_name if model.kind in FINETUNED else "", size) if fact)
    return f"{texts('model.bundled') if model.is_bundled else model.name} ({facts})"


def is_served_here_only() -> bool:
    """Whether only this machine can reach the demo, which is the default."""
    return st.get_option("server.address") in ("localhost", "127.0.0.1", "::1")


def _add_folder(texts: Texts) -> None:
    """Show a field for a model folder, to users of this machine only: others must not browse its files."""
    if not is_served_here_only():
        return
    with st.expander(texts("sidebar.add"), key="add-folder"):
        st.text_input(texts("sidebar.folder"), key="folder", placeholder="runs/klue-mrc", on_change=_added)
        if error := st.session_state.get("folder-error"):
            st.error(literal(explain(error, texts)), icon=":material/error:")
        elif added := st.session_state.get("added-folders"):
            found = ModelFolder(added[-1])
            text = texts("sidebar.added", name=found.name, kind=texts(f"kind.{found.kind}"))
            st.success(literal(text), icon=":material/check:")


def _added() -> None:
    name = st.session_state["folder"].strip()
    st.session_state["folder-error"] = None
    if name:
        folder = Path(name).expanduser()
        try:
            kind = ModelFolder(folder).kind
        except SuiteError as error:
            st.session_state["folder-error"] = error
        else:
            # Adding a model selects it.
            st.session_state[f"{kind}-model"] = str(folder)
            st.session_state["added-folders"] = [*st.session_state.get("added-folders", []), folder]


def show_loaded(texts: Texts, models: ModelCache) -> None:
    """Show the loaded models and the memory of this process."""
    st.subheader(texts("sidebar.loaded"))
    loaded = models.loaded()
    for entry in loaded:
        kind = texts(f"kind.{entry.choice.kind}")
        if entry.choice.folder is None:
            st.text(f"✓ {kind} · {texts('model.letters')}")
        else:
            st.text(f"✓ {kind} · {entry.choice.name} · {_runtime_title(entry.choice.runtime, texts)}")
    if not loaded:
        st.caption(texts("sidebar.none_loaded"))
    st.caption(texts("sidebar.memory", megabytes=resident_bytes() / 1e6))
    st.caption(texts("sidebar.privacy"))


# ---- messages ----


def show_missing_model(texts: Texts, kind: Kind) -> None:
    """Show that a page has no model, and the command that trains one."""
    st.info(texts(f"missing.{kind}"), icon=":material/info:")
    command = {
        "reader": "python -m downstream.finetune klue-mrc --model ENCODER --out runs/klue-mrc",
        "summarizer": "python -m downstream.summarize train corpora/sample/news.jsonl --out runs/summarizer",
    }.get(kind, "make bundled")
    st.code(command, language="bash", wrap_lines=True)
    if kind in ("reader", "summarizer"):
        out = command.rsplit(" ", 1)[-1]
        st.code(f"{MODELS}={out} make demo", language="bash", wrap_lines=True)


def show_error(error: Exception, texts: Texts) -> None:
    """Show an error as one sentence."""
    st.error(literal(explain(error, texts)), icon=":material/error:")
    if isinstance(error, CheckpointError):
        st.code(str(error), language=None, wrap_lines=True)


def show_rejected(rejected: Sequence[RejectedRecord], texts: Texts) -> None:
    """Show the rejected records of a file, with reasons."""
    if rejected:
        with st.expander(texts("rejected.title", count=len(rejected)), icon=":material/warning:"):
            for record in rejected[:SHOWN_REJECTED]:
                st.text(explain_rejected(record, texts))
            if len(rejected) > SHOWN_REJECTED:
                st.caption(texts("rejected.more", count=len(rejected) - SHOWN_REJECTED))


def download(label: str, data: str | bytes | Callable[[], bytes], name: str, **options: Any) -> None:
    """Show a button that downloads DATA as a file; a function is called when it is pressed."""
    media_type = MEDIA_TYPES[name.rsplit(".", 1)[-1]]
    icon = ":material/download:"
    st.download_button(label, data, name, media_type, key=name, icon=icon, on_click="ignore", **options)


def heading(texts: Texts, page: str) -> None:
    """Show a page's title and lead."""
    st.title(texts(f"{page}.title"), anchor=False)
    st.html(f'<p class="pb-lead">{texts(f"{page}.lead")}</p>')


# ---- long work ----


def run_job(texts: Texts, name: str, asked: object, work: Callable[[Progress], T]) -> T | None:
    """Run WORK in the background of this session, once for each value of ASKED.

    Args:
        texts: texts of the page's language.
        name: name of the job in the session.
        asked: everything that determines the result; another value restarts the job.
        work: receives a `Progress` to call between its steps.

    Returns:
        Its result; None while it runs, or if it failed or was cancelled, which is shown.
    """
    entry = st.session_state.get(f"job-{name}")
    if entry is None or entry[0] != asked:
        if entry is not None:
            entry[1].progress.cancel()
        entry = (asked, Job(work))
        st.session_state[f"job-{name}"] = entry
        entry[1].wait(FIRST_LOOK_S)
    job: Job[T] = entry[1]
    if job.state == "running":
        _watch(texts, name)
        return None
    if job.state == "done":
        return job.result
    if job.state == "failed":
        assert job.error is not None
        show_error(job.error, texts)
    else:
        st.warning(texts("job.cancelled"), icon=":material/cancel:")
    if st.button(texts("job.again"), key=f"again-{name}", icon=":material/refresh:"):
        del st.session_state[f"job-{name}"]
        st.rerun()
    return None


@st.fragment(run_every=POLL_S)
def _watch(texts: Texts, name: str) -> None:
    """Show the progress of a job until it ends."""
    job: Job[Any] = st.session_state[f"job-{name}"][1]
    progress = job.progress
    progress.look()
    if job.state != "running":
        st.rerun()
    share = min(1.0, progress.done / progress.total) if progress.total else 0.0
    step = texts(f"step.{progress.step}") if progress.step else texts("step.start")
    count = f" · {progress.done:,} / {progress.total:,}" if progress.total else ""
    st.progress(share, text=f"{step}{count}")
    if st.button(texts("job.cancel"), key=f"cancel-{name}", icon=":material/stop_circle:"):
        progress.cancel()


# ---- inputs ----


@dataclass(frozen=True)
class Given:
    """Input of a page; its records keep their identity from one run of the page to the next."""

    records: tuple[Any, ...]
    source: str
    rejected: tuple[RejectedRecord, ...] = ()


def given_to(page: str) -> Given | None:
    """Return the last input of a page; None without a usable one."""
    given: Given | None = st.session_state.get(f"{page}-given")
    return given


def take(page: str, read: Callable[[], Given]) -> None:
    """Store what READ returns as the input of a page, or its error for `show_refusal`."""
    given, error = None, None
    try:
        given = read()
    except (InputError, SuiteError, ValueError) as found:
        error = found
    st.session_state[f"{page}-given"], st.session_state[f"{page}-error"] = given, error


def show_refusal(page: str, texts: Texts) -> None:
    """Show why the last input was refused, and its rejected records."""
    if error := st.session_state.get(f"{page}-error"):
        show_error(error, texts)
    if given := given_to(page):
        show_rejected(given.rejected, texts)


def file_field(texts: Texts, page: str, read: Callable[[str, bytes], ReadFile]) -> None:
    """Show a file field, and read each uploaded file once.

    Types are checked here: the browser's own message would be English.
    """
    file = st.file_uploader(texts(f"{page}.upload"), key=f"{page}-file", help=texts("upload.help", limit=MAX_UPLOAD_MB))
    if file is None or st.session_state.get(f"{page}-taken") == file.file_id:
        return
    st.session_state[f"{page}-taken"] = file.file_id

    def given() -> Given:
        found = read(file.name, file.getvalue())
        return Given(found.records, file.name, found.rejected)

    take(page, given)
