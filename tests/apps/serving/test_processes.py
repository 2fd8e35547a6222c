"""The server as a process, with real but tiny models: what it answers over HTTP, how it is started, hurt and ended."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import BertConfig

pytest.importorskip("fastapi", reason="needs the packages of the server: pip install 'pressbert[serve]'")

from apps.serve import is_loopback, main
from apps.serving.processes import Supervisor, listen
from apps.serving.services import Settings, load_services
from apps.serving.tool import Service, TextItem, UnsuitableError
from apps.serving.tools.texts.answer import AnswerRequest
from apps.serving.tools.texts.classify import ClassifyPairsRequest, ClassifyRequest, ClassifyTextsRequest
from corpora.documents import read_documents
from corpora.foundation.errors import CheckpointError, SuiteError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.embed import encode
from downstream.encoders.folder import TASK_KEY
from downstream.runtimes.predictor import Predictor
from downstream.summarize import Summarizer, summarize
from downstream.task import QuestionExample, TextExample, get_task
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

pytestmark = pytest.mark.usefixtures("cache")

Fails = Callable[..., AbstractContextManager[None]]

START_S = 180.0
CONTEXT = "새 다리가 지난 3일 열렸다. 주민들은 반겼다. 시는 버스 노선을 바꾼다."


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with tiny models of random weights, by the name of what they do."""
    root = tmp_path_factory.mktemp("models")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    lines = [document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl")][:40]
    tokenizer = train_wordpiece(lines, 1500)
    for name, task_name in (
        ("sentiment", "nsmc"),
        ("pairs", "klue-nli"),
        ("scores", "klue-sts"),
        ("reader", "klue-mrc"),
    ):
        task = get_task(task_name)
        torch.manual_seed(3)
        config = BertConfig(vocab_size=1500, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
        config.update(task.family.head_config() | {"intermediate_size": 64, TASK_KEY: task.name})
        model = getattr(transformers, task.family.auto_class).from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(4)
        model.save_pretrained(root / name)
        save_tokenizer(tokenizer, root / name)
    torch.set_num_threads(before)
    return root


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have exported files kept in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def shown(service: Service, request: Any) -> list[Any]:
    """Return what is answered to a request, batch by batch of one kind."""
    items = service.items(request)
    return [json.loads(service.show(item, service.compute([item])[0])) for item in items]


# --- what is served --------------------------------------------------------------------------------------------------


def test_the_services_answer_as_the_functions_do(models: Path) -> None:
    settings = Settings(
        tools={
            "classify": str(models / "sentiment"),
            "answer": str(models / "reader"),
            "embed": str(models / "sentiment"),
            "summarize": "bundled",
        },
        runtime="onnx-fp32",
    )
    services = load_services(settings)
    assert list(services) == ["answer", "classify", "embed", "summarize"]
    assert {name: s.runtime for name, s in services.items() if name != "summarize"} == dict.fromkeys(
        ("classify", "answer", "embed"), "onnx-fp32"
    )

    texts = ["배우들 연기가 좋았다", "별로", ""]
    labels = shown(services["classify"], ClassifyRequest(texts=texts))
    examples = [TextExample(str(k), text, None, "") for k, text in enumerate(texts)]
    predictor = Predictor.load(models / "sentiment", "torch")
    assert [row["label"] for row in labels] == predictor.predict(examples)
    for row, logits in zip(labels, predictor.outputs(examples)[0], strict=True):
        right = np.exp(logits) / np.exp(logits).sum()
        assert list(row["scores"].values()) == pytest.approx(right, abs=1e-4)
        assert list(row["scores"]) == ["negative", "positive"]

    questions = [
        {"question": "다리는 언제 열렸나?", "context": CONTEXT},
        {"question": "누가 반겼나?", "context": CONTEXT * 30},
    ]
    answers = shown(services["answer"], AnswerRequest.model_validate({"questions": questions}))
    wanted = Predictor.load(models / "reader", "torch").predict(
        [QuestionExample(str(k), q["question"], q["context"], ()) for k, q in enumerate(questions)]
    )
    assert [answer["answer"] for answer in answers] == wanted
    assert [answer["is_answered"] for answer in answers] == [bool(answer) for answer in wanted]

    vectors = np.array(shown(services["embed"], services["embed"].request(texts=texts)))
    assert vectors == pytest.approx(encode(texts, model=models / "sentiment"), abs=1e-4)

    article = next(read_documents(SAMPLE_ROOT / "news.jsonl"))
    request = {"articles": [{"text": article.text, "title": article.title}], "sentences": 2}
    (got,) = shown(services["summarize"], services["summarize"].request.model_validate(request))
    right_summary = summarize(article.text, 2, title=article.title)
    assert [s["text"] for s in got["sentences"]] == [s.text for s in right_summary.sentences]
    assert all(article.text[s["start"] : s["end"]] == s["text"] for s in got["sentences"])


def test_results_hold_no_text(models: Path) -> None:
    settings = Settings(tools={"answer": str(models / "reader"), "summarize": "bundled"}, runtime="onnx-fp32")
    services = load_services(settings)
    asked = {"answer": (("무엇이 열렸나?", CONTEXT), ""), "summarize": ((CONTEXT, "제목"), '{"explain": true}')}
    for name, (texts, option) in asked.items():
        (value,) = services[name].compute([TextItem(texts, option)])
        assert not re.search("[가-힣]", value.decode())


def test_scores_and_pairs(models: Path) -> None:
    scores = load_services(Settings(tools={"classify": str(models / "scores")}, runtime="torch"))["classify"]
    request = ClassifyRequest.model_validate({"texts": [{"text": "비가 온다", "pair": "비가 내린다"}]})
    (row,) = shown(scores, request)
    (right,) = Predictor.load(models / "scores", "torch").predict([TextExample("", "비가 온다", "비가 내린다", "")])
    assert row["score"] == pytest.approx(float(right), abs=1e-5)
    with pytest.raises(UnsuitableError, match=r"texts\.1.*pairs"):
        scores.items(ClassifyRequest.model_validate({"texts": [{"text": "가", "pair": "나"}, "다"]}))
    pairs = load_services(Settings(tools={"classify": str(models / "pairs")}, runtime="torch"))["classify"]
    assert shown(pairs, request)[0]["label"] in {"entailment", "contradiction", "neutral"}
    sentiment = load_services(Settings(tools={"classify": str(models / "sentiment")}, runtime="torch"))["classify"]
    with pytest.raises(UnsuitableError, match=r"texts\.0.*single"):
        sentiment.items(request)


def test_decomposed_and_composed_texts_are_the_same(models: Path) -> None:
    service = load_services(Settings(tools={"classify": str(models / "sentiment")}, runtime="torch"))["classify"]
    both = [service.items(ClassifyRequest(texts=[unicodedata.normalize(form, "좋았다")])) for form in ("NFC", "NFD")]
    assert both[0] == both[1]


def test_the_description_of_a_classifier_is_that_of_its_model(models: Path) -> None:
    for name, kind in [("sentiment", "Text"), ("pairs", "Pair"), ("scores", "Pair")]:
        service = load_services(Settings(tools={"classify": str(models / name)}, runtime="torch"))["classify"]
        assert service.described is not None
        assert issubclass(service.described, {"Text": ClassifyTextsRequest, "Pair": ClassifyPairsRequest}[kind]), name
        # What is described is a part of what is read, and all of it is taken.
        body = {"texts": ["글"] if kind == "Text" else [{"text": "글", "pair": "짝"}]}
        described = service.described.model_validate(body).model_dump()
        assert {"label": None} | described == service.request.model_validate(body).model_dump(), name
        assert len(service.items(service.request.model_validate(body))) == 1, name


def test_a_summarizer_runs_on_what_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: Fails) -> None:
    asked: list[str] = []
    original = Summarizer.load

    def load(source: str | Path | None = None, runtime: str = "auto") -> Summarizer:
        asked.append(runtime)
        return original(source, runtime)

    monkeypatch.setattr(Summarizer, "load", load)
    (tmp_path / "summarizer.json").write_text('{"schema": 1, "weights": {"lead": 1.0}}', encoding="utf-8")
    for runtime in ("auto", "torch", "onnx-int8", "numba-int8"):
        service = load_services(Settings(tools={"summarize": str(tmp_path)}, runtime=runtime))["summarize"]
        assert service.runtime == "numpy"  # there is nothing neural in it
    assert asked == ["auto", "torch", "onnx-int8", "torch"]
    (tmp_path / "summarizer.json").write_text(
        '{"schema": 1, "weights": {"scorer": 1.0}, "scorer": "."}', encoding="utf-8"
    )
    with fails(UsageError, "--runtime", "numba-int8 does not run summarizers", "auto, torch, onnx, onnx-fp32"):
        load_services(Settings(tools={"summarize": str(tmp_path)}, runtime="numba-int8"))


def test_a_missing_bundled_classifier_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: Fails
) -> None:
    monkeypatch.setattr("downstream.encoders.hub.BUNDLED", tmp_path)
    with fails(CheckpointError, tmp_path / "classifier", "no classifier is bundled", "make bundled"):
        load_services(Settings(tools={"classify": "bundled"}))


def test_a_model_for_something_else_is_refused(models: Path, fails: Fails) -> None:
    with fails(UsageError, "--classify", "KLUE-MRC"):
        load_services(Settings(tools={"classify": str(models / "reader")}, runtime="torch"))
    with fails(UsageError, "--answer", "NSMC"):
        load_services(Settings(tools={"answer": str(models / "sentiment")}, runtime="torch"))
    with fails(CheckpointError, models, "config.json"):
        load_services(Settings(tools={"classify": str(models)}, runtime="torch"))


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A running server."""

    process: "subprocess.Popen[str]"
    port: int
    lines: list[dict[str, Any]]
    """What it logged so far."""

    def request(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, headers or {"content-type": "application/json"})
        response = connection.getresponse()
        data = response.read().decode()
        connection.close()
        return response.status, json.loads(data) if response.headers["content-type"] == "application/json" else data

    def classify(self, text: str) -> tuple[int, Any]:
        return self.request("POST", "/classify", {"texts": [text]})

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == name]

    def workers(self) -> set[int]:
        """Return the processes that answer, as far as a few requests show."""
        for _ in range(30):
            self.request("GET", "/health")
        return {line["worker"] for line in self.events("request")[-30:]}

    def until(self, condition: Callable[[], Any], seconds: float = START_S) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.05)


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Server]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "apps.serve", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
    )
    server = Server(process, 0, [])
    other: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("{"):
                server.lines.append(json.loads(line))
            else:
                other.append(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + START_S
        while not server.events("listening"):
            assert process.poll() is None, "".join(other)
            assert time.monotonic() < deadline, "".join(other)
            time.sleep(0.05)
        server.port = int(server.events("listening")[0]["url"].rsplit(":", 1)[1])
        # What is loaded stands in the log, with seconds, and nothing but the log's lines.
        tools = [event["tool"] for event in server.events("loading")]
        assert tools
        assert [event["tool"] for event in server.events("loaded")] == tools
        assert all(event["seconds"] >= 0 for event in server.events("loaded"))
        assert other == []
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)
        reader.join(10)
    assert not [line for line in other if "Traceback" in line], "".join(other)


@pytest.mark.slow
def test_two_workers_serve_share_figures_survive_a_death_and_end_gently(models: Path) -> None:
    with running("--classify", str(models / "sentiment"), "--runtime", "onnx-fp32", "--workers", "2") as server:
        assert server.events("listening")[0]["served"] == [
            {"endpoint": "classify", "model": "sentiment", "runtime": "onnx-fp32"}
        ]
        expected = Predictor.load(models / "sentiment", "onnx-fp32")
        texts = [f"댓글 {k} 배우들 연기" + " 좋았다" * (k % 5) for k in range(40)]
        right = expected.predict([TextExample("", text, None, "") for text in texts])
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(server.classify, texts))
        assert [(status, body["results"][0]["label"]) for status, body in answers] == [(200, label) for label in right]
        assert server.request("GET", "/ready")[0] == 200
        assert server.request("GET", "/models", headers={"host": "evil.example"})[0] == 421
        assert server.request("POST", "/classify", {"texts": ["x" * (1 << 20)]})[0] == 413

        # Whoever is asked knows the figures of all.
        first, second = server.workers(), set()
        server.until(lambda: second.update(server.workers()) or len(second) == 2)
        counted = re.findall(
            r'pressbert_texts_total\{endpoint="classify",source="\w+"\} (\d+)', server.request("GET", "/metrics")[1]
        )
        assert sum(map(int, counted)) == 40

        # A worker that dies is replaced, and the other one continues.
        victim = first.pop()
        os.kill(victim, signal.SIGKILL)
        server.until(lambda: [e for e in server.events("worker_died") if e["pid"] == victim])
        # So is the one that dies while it loads its models.
        known = first | second | {victim}
        server.until(lambda: workers_of(server.process.pid) - known)
        [successor] = workers_of(server.process.pid) - known
        os.kill(successor, signal.SIGKILL)
        server.until(lambda: [e for e in server.events("worker_died") if e["pid"] == successor])
        assert server.classify("그동안")[0] == 200
        everyone: set[int] = set()
        server.until(lambda: everyone.update(alive_answers(server)) or len(everyone - {victim}) == 2)
        assert server.classify("다시")[0] == 200

        outcomes, stop = load(server.port)
        time.sleep(1.0)
        server.process.terminate()
        assert server.process.wait(60) == 0
        stop.set()
        for thread in outcomes.threads:
            thread.join(30)
        assert outcomes.answered > 20
        assert outcomes.dropped == 0
        assert outcomes.statuses == {200}
    assert server.events("stopped")
    assert not list(Path("/tmp").glob(f"pressbert-metrics-*/gauge_livesum_{victim}.db"))


def workers_of(pid: int) -> set[int]:
    """Return the worker processes of a server, also those that do not answer yet."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


def alive_answers(server: Server) -> set[int]:
    """Return who answers, passing over connections that a dying worker took with it."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return server.workers()
    return set()


@dataclass
class Outcomes:
    """What a load saw."""

    threads: list[threading.Thread]
    statuses: set[int]
    answered: int = 0
    dropped: int = 0


def load(port: int, connections: int = 6) -> tuple[Outcomes, threading.Event]:
    """Send requests on connections that stay open, until stopped or refused a connection."""
    stop, lock, outcomes = threading.Event(), threading.Lock(), Outcomes([], set())

    def talk(number: int) -> None:
        count = 0
        while not stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.connect()
            except OSError:
                return
            while not stop.is_set():
                count += 1
                body = json.dumps({"texts": [f"부하 {number} {count}"]}).encode()
                try:
                    connection.request("POST", "/classify", body, {"content-type": "application/json"})
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException):
                    with lock:
                        outcomes.dropped += 1
                    return
                with lock:
                    outcomes.answered += 1
                    outcomes.statuses.add(response.status)
                if response.headers["connection"] == "close":
                    connection.close()
                    break

    outcomes.threads = [threading.Thread(target=talk, args=(k,), daemon=True) for k in range(connections)]
    for thread in outcomes.threads:
        thread.start()
    return outcomes, stop


@pytest.mark.slow
def test_schemathesis_finds_no_fault(models: Path, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="needs schemathesis: pip install 'pressbert[test]'")
    (tmp_path / "summary").mkdir()
    (tmp_path / "summary" / "summarizer.json").write_text('{"schema": 1, "weights": {"lead": 1.0}}', encoding="utf-8")
    services = [
        f"--classify={models / 'sentiment'}",
        f"--answer={models / 'reader'}",
        f"--embed={models / 'sentiment'}",
    ]
    with running(*services, f"--summarize={tmp_path / 'summary'}", "--runtime", "torch") as server:
        url = f"http://127.0.0.1:{server.port}/openapi.json"
        program = str(Path(sys.executable).with_name("schemathesis"))
        options = "--checks all --max-examples 3 --seed 1 --generation-database none"
        done = subprocess.run(
            [program, "run", url, *options.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        statuses = {event["status"] for event in server.events("request")}
    assert {200, 422} <= statuses
    assert max(statuses) < 500


@pytest.mark.slow
def test_a_slow_sender_and_a_closed_door(models: Path) -> None:
    arguments = ("--classify", str(models / "sentiment"), "--runtime", "torch", "--timeout-s", "1", "--drain-s", "0.2")
    with running(*arguments) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
            slow.sendall(
                b"POST /classify HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: 50\r\n\r\n{"
            )
            answer = slow.recv(4096)
            assert answer.startswith(b"HTTP/1.1 408 ")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as odd:
            odd.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            assert odd.recv(4096).startswith(b"HTTP/1.1 400 ")
        done = run_command("--classify", str(models / "sentiment"), "--runtime", "torch", "--port", str(server.port))
        assert done == (
            2,
            f"127.0.0.1:{server.port}: cannot listen there (Address already in use); give another --host or --port",
        )


def run_command(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "apps.serve", *arguments],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.strip()


def test_head_and_body_of_an_answer_do_not_wait_for_each_other() -> None:
    for is_shared in [False, True]:
        with (
            listen("127.0.0.1", 0, is_shared=is_shared) as listener,
            socket.create_connection(listener.getsockname()),
            listener.accept()[0] as connection,
        ):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), is_shared


def test_a_mistake_is_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, what in [
        ([], "no model to serve"),
        (["--classify", "nowhere"], "nowhere"),
        (["--sumarize"], "did you mean '--summarize'?"),
        (["--summarize", "--workers", "0"], "--workers: 0 is less than 1"),
        (["--summarize", "--max-batch", "0"], "max_batch=0"),
        (["--summarize", "--timeout-s", "nan"], "timeout_s"),
        (["--summarize", "--cache-mb", "-1"], "cache_bytes"),
        (["--summarize", "--runtime", "onx"], "unknown runtime 'onx'"),
        (["--summarize", "--port", "99999"], "99999"),
        (["--summarize", "--host", "no such host"], "cannot listen"),
        (["--summarize", "--host", ""], "--host: an empty name"),
        (["--summarize", "--allow-host", " "], "--allow-host: an empty name"),
        (["--classify", ""], "--classify: an empty folder"),
        (["--stories", " "], "--stories: an empty folder"),
    ]:

        def never(*_: object) -> None:
            raise AssertionError("it serves")

        monkeypatch.setattr(Supervisor, "run", never)
        with pytest.raises(SuiteError) as caught:
            main(arguments)
        assert what in str(caught.value), arguments
        assert len(str(caught.value).splitlines()) == 1, arguments


def test_addresses_of_this_machine_alone_are_known() -> None:
    for host, expected in [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.8.8.8", True),
        ("0.0.0.0", False),
        ("news", False),
    ]:
        assert is_loopback(host) is expected, host
