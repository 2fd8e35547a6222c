"""The server's application, called without a network: batches, refusals, limits, privacy, figures, description."""

import asyncio
import gzip
import html
import json
import logging
import re
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

pytest.importorskip("fastapi", reason="needs fastapi and prometheus-client: pip install 'pressbert[serve]'")
pytest.importorskip("prometheus_client", reason="needs fastapi and prometheus-client: pip install 'pressbert[serve]'")

from apps.serving.bodies import unpack
from apps.serving.metrics import Metrics
from apps.serving.page import example
from apps.serving.refusals import RefusalError
from apps.serving.services import Settings
from apps.serving.tool import KOREAN, Service, TextItem, UnsuitableError, all_tools
from apps.serving.tools.texts.answer import AnswerRequest, AnswerResponse
from apps.serving.tools.texts.classify import ClassifyRequest, ClassifyResponse, Pair
from apps.serving.web import Serving, make_app

JSON = {"content-type": "application/json"}
SETTINGS = Settings(tools={"classify": "x"}, timeout_s=20.0, max_waiting=8)
SECRET = "비밀기사본문"


# --- an application with fakes ---------------------------------------------------------------------------------------


class Gatekeeper:
    """What the fakes compute with: notes every batch, and holds it up while the gate is shut."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, ...]]] = []
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.gate.set()

    def compute(self, batch: Sequence[TextItem]) -> list[bytes]:
        self.batches.append([item.texts for item in batch])
        self.entered.set()
        assert self.gate.wait(20)
        if any("고장" in item.texts[0] for item in batch):
            raise RuntimeError(f"cannot compute {batch[0].texts[0]}")
        # What a text gets follows from its last character and its length alone.
        return [to_json({"label": item.texts[0][-1:], "scores": {"length": len(item.texts[0])}}) for item in batch]

    @property
    def texts(self) -> list[str]:
        return [texts[0] for batch in self.batches for texts in batch]


def classify_items(request: ClassifyRequest) -> list[TextItem]:
    if any("짝만" in str(text) for text in request.texts):
        raise UnsuitableError("pairs", "texts.0", task="견본")
    return [TextItem((t.text, t.pair) if isinstance(t, Pair) else (t,)) for t in request.texts]


def fakes(keeper: Gatekeeper) -> dict[str, Service]:
    classify = Service(
        endpoint="classify",
        model="fake",
        digest="1" * 64,
        runtime="torch",
        about={"task": "nsmc"},
        request=ClassifyRequest,
        response=ClassifyResponse,
        sample=TextItem(("견본",)),
        items=classify_items,
        compute=keeper.compute,
    )
    return {
        "classify": classify,
        "embed": replace(
            classify,
            endpoint="embed",
            request=all_tools()["embed"].request,
            response=all_tools()["embed"].response,
            items=lambda request: [TextItem((text,)) for text in request.texts],
            compute=lambda batch: [to_json([0.6, 0.8]) for _ in batch],
        ),
        "answer": replace(
            classify,
            endpoint="answer",
            request=AnswerRequest,
            response=AnswerResponse,
            items=lambda request: [TextItem((q.question, q.context)) for q in request.questions],
            compute=lambda batch: [to_json({"start": 0, "end": 3, "confidence": 0.5}) for _ in batch],
            show=lambda item, value: to_json({"answer": item.texts[1][:3], "is_answered": True} | json.loads(value)),
        ),
        "summarize": replace(
            classify,
            endpoint="summarize",
            request=all_tools()["summarize"].request,
            response=all_tools()["summarize"].response,
            items=lambda request: [
                TextItem((article.text, article.title), f"{request.sentences}:{request.focus}")
                for article in request.articles
            ],
            compute=lambda batch: [to_json([int(item.settings.partition(":")[0])]) for item in batch],
            show=lambda item, value: to_json(
                {
                    "sentences": [
                        {"text": item.texts[0][:k], "start": 0, "end": k, "index": 0, "score": 0.5, "components": {}}
                        for k in json.loads(value)
                    ],
                    "candidates": [],
                    "excluded": [],
                }
            ),
        ),
    }


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Calls an application as a server does."""

    app: Any
    serving: Serving
    keeper: Gatekeeper
    reads: list[int] = field(default_factory=list)
    """How often the application asked for a part of the body, by request."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] = JSON,
        parts: Iterable[bytes | float] = (b"",),
        length: int | str | None = None,
    ) -> Answer:
        """Send a request; a number among the parts is a pause in seconds, the end without an end a disconnect."""
        pending = list(parts)
        sent: list[Any] = []
        self.reads.append(0)
        call = len(self.reads) - 1

        async def receive() -> dict[str, Any]:
            self.reads[call] += 1
            while pending and isinstance(pending[0], float):
                await asyncio.sleep(pending.pop(0))
            if not pending:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pending.pop(0), "more_body": bool(pending)}

        async def send(message: Any) -> None:
            sent.append(message)

        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        if length is not None:
            raw.append((b"content-length", str(length).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": raw,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await self.app(scope, receive, send)
        start = next(message for message in sent if message["type"] == "http.response.start")
        body = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
        return Answer(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        return await self.call("POST", path, parts=[content], length=len(content), **options)

    async def classify(self, *texts: str) -> Answer:
        return await self.post("/classify", {"texts": list(texts)})

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.call("GET", path, headers=headers or {})

    async def figures(self) -> dict[str, float]:
        """Return every figure of /metrics by its name with labels."""
        lines = (await self.get("/metrics")).body.decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it does not happen")


@asynccontextmanager
async def serving(settings: Settings = SETTINGS, hosts: Iterable[str] = ()) -> AsyncIterator[Client]:
    keeper = Gatekeeper()
    state = Serving(fakes(keeper), settings, Metrics())
    state.batcher.start()
    try:
        yield Client(make_app(state, hosts=hosts), state, keeper)
    finally:
        keeper.gate.set()
        await asyncio.to_thread(state.batcher.close)


def run(scenario: Callable[[Client], Awaitable[None]], settings: Settings = SETTINGS, **options: Any) -> None:
    async def whole() -> None:
        async with serving(settings, **options) as client:
            await scenario(client)

    asyncio.run(whole())


# --- answers ---------------------------------------------------------------------------------------------------------


def test_every_text_gets_its_own_result_in_order() -> None:
    async def scenario(client: Client) -> None:
        answer = await client.classify("가", "나나", "다다다")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert [(r["label"], r["scores"]["length"]) for r in answer.json["results"]] == [
            ("가", 1),
            ("나", 2),
            ("다", 3),
        ]
        ClassifyResponse.model_validate_json(answer.body)

    run(scenario)


def test_clients_at_the_same_time_do_not_see_each_others_texts() -> None:
    async def scenario(client: Client) -> None:
        texts = {f"{'말' * (1 + k % 7)}{chr(0xAC00 + k)}" for k in range(200)}

        async def one(text: str) -> None:
            answer = await client.classify(text, text)
            assert [r["label"] for r in answer.json["results"]] == [text[-1]] * 2
            assert not (texts - {text}) & set(re.findall(r"[가-힣]+", answer.body.decode()))

        client.keeper.gate.clear()
        asked = [asyncio.create_task(one(text)) for text in texts]
        await client.until(lambda: client.serving.batcher.num_waiting > 50)
        client.keeper.gate.set()
        await asyncio.gather(*asked)
        assert any(len(batch) > 1 for batch in client.keeper.batches)

    run(scenario, SETTINGS.model_copy(update={"max_waiting": 500}))


# --- batches ---------------------------------------------------------------------------------------------------------


def test_what_waits_is_computed_together_by_length() -> None:
    async def scenario(client: Client) -> None:
        client.keeper.gate.clear()
        first = asyncio.create_task(client.classify("처음"))
        await client.until(client.keeper.entered.is_set)
        short = [f"짧다{k}" for k in range(3)]
        long = [f"{'길고 긴 댓글 ' * 40}{k}" for k in range(3)]
        waiting = [
            asyncio.create_task(client.classify(text)) for pair in zip(short, long, strict=True) for text in pair
        ]
        await client.until(lambda: client.serving.batcher.num_waiting == 6)
        client.keeper.gate.set()
        await asyncio.gather(first, *waiting)
        assert [[t[0] for t in batch] for batch in client.keeper.batches] == [["처음"], short, long]

    run(scenario)


def test_a_lone_request_is_computed_at_once() -> None:
    async def scenario(client: Client) -> None:
        await client.classify("혼자")
        assert client.keeper.batches == [[("혼자",)]]

    run(scenario)


def test_a_batch_has_its_bounds() -> None:
    async def scenario(client: Client) -> None:
        await client.classify(*(f"댓글{k}" for k in range(7)))
        assert max(map(len, client.keeper.batches)) == 3
        client.keeper.batches.clear()
        await client.classify(*(f"{'가' * 60}{k}" for k in range(4)))
        assert max(map(len, client.keeper.batches)) == 2  # 2 × (8 + 61) characters fit, 3 do not

    run(scenario, SETTINGS.model_copy(update={"max_batch": 3, "max_batch_characters": 150}))


def test_a_text_that_breaks_the_model_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Client) -> None:
        client.keeper.gate.clear()
        first = asyncio.create_task(client.classify("처음"))
        await client.until(client.keeper.entered.is_set)
        broken, whole = (asyncio.create_task(client.classify(text)) for text in (f"고장{SECRET}", "멀쩡한댓글임"))
        await client.until(lambda: client.serving.batcher.num_waiting == 2)
        client.keeper.gate.set()
        answers = await asyncio.gather(first, broken, whole)
        assert [answer.status for answer in answers] == [200, 500, 200]
        assert answers[1].json["status"] == 500
        assert SECRET not in answers[1].body.decode()
        assert (await client.classify("그다음")).status == 200

    with caplog.at_level(logging.INFO):
        run(scenario)
    errors = [json.loads(r.message) for r in caplog.records if r.levelno >= logging.ERROR]
    assert [error["kind"] for error in errors] == ["RuntimeError"]
    assert any("compute" in frame for frame in errors[0]["frames"])
    assert SECRET not in caplog.text


# --- too much --------------------------------------------------------------------------------------------------------


def test_too_much_is_refused_with_503_and_the_server_recovers() -> None:
    async def scenario(client: Client) -> None:
        client.keeper.gate.clear()
        first = asyncio.create_task(client.classify("처음"))
        await client.until(client.keeper.entered.is_set)
        accepted = [asyncio.create_task(client.classify(f"받음{k}")) for k in range(8)]
        await client.until(lambda: client.serving.batcher.num_waiting == 8)
        assert (await client.get("/ready")).json == {"status": "overloaded", "waiting": 8}
        refused = await asyncio.gather(*(client.classify(f"거절{k}") for k in range(20)))
        assert {answer.status for answer in refused} == {503}
        for answer in refused:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json["detail"] == "the queue is full"
        assert (await client.get("/health")).status == 200
        client.keeper.gate.set()
        assert {answer.status for answer in await asyncio.gather(first, *accepted)} == {200}
        assert not [text for text in client.keeper.texts if text.startswith("거절")]
        assert (await client.classify("다시")).status == 200
        assert (await client.get("/ready")).status == 200
        figures = await client.figures()
        assert figures['pressbert_refused_total{reason="the queue is full"}'] == 20

    run(scenario)


def test_a_request_is_taken_whole_or_not_at_all() -> None:
    async def scenario(client: Client) -> None:
        assert (await client.classify(*(f"글{k}" for k in range(9)))).status == 503
        assert client.keeper.batches == []
        assert (await client.classify(*(f"글{k}" for k in range(8)))).status == 200

    run(scenario)


def test_what_is_not_done_in_time_is_refused_and_never_computed() -> None:
    async def scenario(client: Client) -> None:
        client.keeper.gate.clear()
        first = asyncio.create_task(client.classify("처음"))
        await client.until(client.keeper.entered.is_set)
        late = await client.classify("늦음")
        assert (late.status, late.json["detail"]) == (503, "not done in time")
        client.keeper.gate.set()
        await first
        await client.classify("다음")
        assert client.keeper.texts == ["처음", "다음"]

    run(scenario, SETTINGS.model_copy(update={"timeout_s": 0.3}))


# --- cache -----------------------------------------------------------------------------------------------------------


def test_what_was_asked_before_is_not_computed_again() -> None:
    async def scenario(client: Client) -> None:
        first = await client.classify("같은 글", "다른 글", "같은 글")
        second = await client.classify("다른 글", "같은 글")
        assert client.keeper.texts == ["같은 글", "다른 글"]
        assert second.json["results"] == first.json["results"][1::-1]
        figures = await client.figures()
        assert figures['pressbert_texts_total{endpoint="classify",source="cache"}'] == 2
        assert figures['pressbert_texts_total{endpoint="classify",source="computed"}'] == 3

    run(scenario)


def test_other_settings_another_pair_another_endpoint_are_other_questions() -> None:
    async def scenario(client: Client) -> None:
        article = {"text": "가나다라마바사"}
        lengths = [
            (await client.post("/summarize", {"articles": [article], "sentences": n})).json["results"][0]["sentences"][
                0
            ]
            for n in (2, 5, 2)
        ]
        assert [sentence["end"] for sentence in lengths] == [2, 5, 2]
        await client.post("/classify", {"texts": [{"text": "ab", "pair": "c"}, {"text": "a", "pair": "bc"}, "abc"]})
        assert sorted(texts for batch in client.keeper.batches for texts in batch) == [
            ("a", "bc"),
            ("ab", "c"),
            ("abc",),
        ]
        assert (await client.post("/embed", {"texts": ["abc"]})).json["results"] == [[0.6, 0.8]]

    run(scenario)


def test_the_cache_can_be_off() -> None:
    async def scenario(client: Client) -> None:
        await client.classify("같은 글")
        await client.classify("같은 글")
        assert client.keeper.texts == ["같은 글"] * 2

    run(scenario, SETTINGS.model_copy(update={"cache_bytes": 0}))


def test_no_text_stays_in_the_cache() -> None:
    async def scenario(client: Client) -> None:
        await client.post("/answer", {"questions": [{"question": "무엇?", "context": SECRET}]})
        await client.post("/summarize", {"articles": [{"text": SECRET, "title": SECRET}]})
        kept = client.serving.cache._values
        assert len(kept) == 2
        assert not [value for pair in kept.items() for value in pair if SECRET[:2].encode() in value]

    run(scenario)


# --- limits ----------------------------------------------------------------------------------------------------------


LIMITED = SETTINGS.model_copy(update={"max_body_bytes": 1000, "body_timeout_s": 0.2})


def test_a_too_large_body_is_read_before_it_is_refused_unless_it_is_far_too_large() -> None:
    async def scenario(client: Client) -> None:
        for length, reads in [(1001, 1), (4000, 1), (4001, 0)]:
            answer = await client.call("POST", "/classify", length=length, parts=[b"x" * length])
            assert (answer.status, answer.headers["connection"]) == (413, "close"), length
            assert "1,000 bytes" in answer.json["detail"], length
            assert client.reads[-1] == reads, length

    run(scenario, LIMITED)


def test_a_body_that_turns_out_too_large_is_not_read_to_the_end() -> None:
    async def scenario(client: Client) -> None:
        answer = await client.call("POST", "/classify", parts=[b"x" * 400] * 50)
        assert answer.status == 413
        assert client.reads == [11]  # four times what is allowed, and the part that went over it
        assert client.keeper.batches == []

    run(scenario, LIMITED)


def test_a_body_of_just_the_limit_passes() -> None:
    async def scenario(client: Client) -> None:
        body = json.dumps({"texts": ["가" * 150]}, ensure_ascii=False).encode()
        body += b" " * (1000 - len(body))
        assert (await client.post("/classify", body)).status == 200
        assert (await client.post("/classify", body + b" ")).status == 413

    run(scenario, LIMITED)


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def scenario(client: Client) -> None:
        began = time.perf_counter()
        answer = await client.call("POST", "/classify", parts=[b'{"texts"', 30.0, b': ["x"]}'])
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert time.perf_counter() - began < 10

    run(scenario, LIMITED)


def test_a_body_in_parts_is_put_together() -> None:
    async def scenario(client: Client) -> None:
        body = json.dumps({"texts": ["조각난 글"]}).encode()
        answer = await client.call("POST", "/classify", parts=[body[:5], 0.01, body[5:9], body[9:]])
        assert answer.json["results"][0]["label"] == "글"

    run(scenario, LIMITED)


def test_a_sender_who_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Client) -> None:
        assert (await client.call("POST", "/classify", parts=[b'{"te', 0.0])).status in (400, 422)

    with caplog.at_level(logging.INFO):
        run(scenario, LIMITED)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_only_plain_json_is_taken() -> None:
    refused: list[dict[str, str]] = [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json", "content-encoding": "br"},
        {"content-type": "application/json", "content-encoding": "gzip, gzip"},
    ]

    async def scenario(client: Client) -> None:
        for headers in refused:
            assert (await client.post("/classify", {"texts": ["글"]}, headers=headers)).status == 415, headers
        headers = {"content-type": "Application/JSON; charset=utf-8"}
        assert (await client.post("/classify", {"texts": ["글"]}, headers=headers)).status == 200

    run(scenario)


def test_a_body_that_does_not_fit_is_answered_with_the_location() -> None:
    cases = [
        (b"", "body: "),
        (b"{", "body: "),
        (b"[]", "body: "),
        (b"\xff\xfe{}", "body: "),
        (b'{"texts": "x"}', "texts: "),
        (b'{"texts": []}', "texts: "),
        (b'{"texts": [1]}', "texts.0"),
        (b'{"texts": ["\\ud800"]}', "body: "),
        (b'{"texts": ["x"], "model": "y"}', "model: "),
        (b'{"texts": [{"text": "x"}]}', "texts.0"),
        (json.dumps({"texts": ["x"] * 65}).encode(), "texts: "),
        (json.dumps({"texts": ["x" * 20_001]}).encode(), "texts.0"),
        (b"[" * 100_000, "body: "),
        (b'{"texts": ["' + SECRET.encode() + b'", NaN]}', "texts.1"),
    ]

    async def scenario(client: Client) -> None:
        for body, reason in cases:
            answer = await client.post("/classify", body)
            assert answer.status == 422, body[:24]
            assert any(error.startswith(reason) for error in answer.json["errors"]), (body[:24], answer.json)
            assert SECRET not in answer.body.decode(), body[:24]

    run(scenario)


def packed(body: Any, **options: Any) -> bytes:
    return gzip.compress(json.dumps(body, ensure_ascii=False).encode(), **options)


GZIP = JSON | {"content-encoding": "gzip"}


def test_packed_bodies_are_unpacked_up_to_the_limit() -> None:
    async def scenario(client: Client) -> None:
        body = packed({"texts": ["가" * 250]})
        for coding in ("gzip", "GZIP", "x-gzip"):
            answer = await client.post("/classify", body, headers=JSON | {"content-encoding": coding})
            assert answer.json["results"][0]["scores"]["length"] == 250, coding
        # Members in a row are one body, as RFC 1952 has it.
        whole = json.dumps({"texts": ["조각"]}).encode()
        members = gzip.compress(whole[:7]) + gzip.compress(whole[7:])
        assert (await client.post("/classify", members, headers=GZIP)).status == 200
        client.keeper.batches.clear()
        bombs = [
            gzip.compress(b" " * 1001),
            gzip.compress(b"[" * 900_000),
            gzip.compress(b" " * 600) + gzip.compress(b" " * 600),
            gzip.compress(b" " * 1000) + gzip.compress(b"") * 20 + gzip.compress(b"x"),
        ]
        for bomb in bombs:
            answer = await client.post("/classify", bomb, headers=GZIP)
            assert (answer.status, answer.json["detail"]) == (413, "the unpacked body may have 1,000 bytes")
        for damaged in (body[:-1], body[:20], b"x" + body, body + b"rest", b"\x1f\x8b", b'{"texts": ["x"]}'):
            answer = await client.post("/classify", damaged, headers=GZIP)
            assert (answer.status, answer.json["title"]) == (400, "malformed"), damaged[:24]
        assert (await client.post("/classify", b"", headers=GZIP)).status == 422
        assert client.keeper.batches == []

    run(scenario, LIMITED)


def test_no_more_is_unpacked_than_the_limit() -> None:
    tracemalloc.start()
    for bomb in (gzip.compress(b"[" * 100_000_000), gzip.compress(b" " * 900) * 20_000):
        tracemalloc.reset_peak()
        with pytest.raises(RefusalError):
            unpack(bomb, 1000)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()


def test_a_byte_order_mark_before_the_body_is_no_mistake() -> None:
    async def scenario(client: Client) -> None:
        body = b"\xef\xbb\xbf" + json.dumps({"texts": ["글"]}).encode()
        assert (await client.post("/classify", body)).status == 200
        assert (await client.post("/classify", gzip.compress(body), headers=GZIP)).status == 200

    run(scenario)


def test_every_refusal_is_in_english_and_korean() -> None:
    wrong: list[tuple[str, bytes, str]] = [
        (path, json.dumps(body).encode(), reason)
        for path, body, reason in (
            ("/classify", {}, "texts: 빠져 있습니다."),
            ("/classify", {"texts": "x"}, "texts: 배열이어야 합니다."),
            ("/classify", {"texts": []}, "texts: 1개 이상이어야 합니다."),
            ("/classify", {"texts": ["x"] * 65}, "texts: 64개까지 보낼 수 있습니다."),
            ("/classify", {"texts": ["x"], "model": 1}, "model: 없는 항목입니다."),
            ("/classify", [], "body: 객체여야 합니다."),
            ("/embed", {"texts": [1]}, "texts.0: 문자열이어야 합니다."),
            ("/embed", {"texts": ["x" * 20_001]}, "texts.0: 20000자까지 쓸 수 있습니다."),
            ("/embed", {"texts": ["x"], "batch_size": 0}, "batch_size: 1 이상이어야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "ratio": 0}, "ratio: 0보다 커야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "ratio": 1.1}, "ratio: 1 이하여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "ratio": "x"}, "ratio: 수여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "ratio": []}, "ratio: 수여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "explain": 3}, "explain: true나 false여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "explain": []}, "explain: true나 false여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "max_chars": 1.5}, "max_chars: 정수여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "max_chars": "x"}, "max_chars: 정수여야 합니다."),
            ("/summarize", {"articles": [{"text": "x"}], "max_chars": {}}, "max_chars: 정수여야 합니다."),
            ("/summarize", {"articles": ["x"]}, "articles.0: 객체여야 합니다."),
            ("/answer", {"questions": [{"question": " ", "context": "x"}]}, "형식에 맞지 않거나 비어 있습니다."),
        )
    ]
    wrong += [
        ("/classify", b"{", "올바른 JSON이 아닙니다"),
        ("/embed", b'{"texts": ["\\ud800"]}', "올바른 JSON이 아닙니다"),
    ]

    async def scenario(client: Client) -> None:
        for path, body, reason in wrong:
            answer = (await client.post(path, body)).json
            assert len(answer["errors"]) == len(answer["errors_ko"]) > 0, body
            assert any(reason in error for error in answer["errors_ko"]), (body, answer)
            assert not [error for error in answer["errors"] if re.search("[가-힣]", error)], body
        others = [
            await client.get("/nothing"),
            await client.get("/classify"),
            await client.post("/classify", {"texts": ["짝만"]}),
            await client.post("/classify", {"texts": ["고장"]}),
            await client.post("/classify", b"x", headers={}),
            await client.post("/classify", b"x", headers=GZIP),
            await client.call("POST", "/classify", length=1 << 30),
            await client.classify(*(f"글{k}" for k in range(9))),
        ]
        assert [answer.status for answer in others] == [404, 405, 422, 500, 415, 400, 413, 503]
        for answer in others:
            for english, korean in (("title", "title_ko"), ("detail", "detail_ko")):
                assert re.search("[가-힣]", answer.json[korean]), answer.json
                assert not re.search("[가-힣]", answer.json[english].replace("견본", "")), answer.json

    run(scenario)


def test_every_error_that_a_schema_can_raise_has_korean_words() -> None:
    """Every kind of error of pydantic that anything sent to any tool raises has a text of its own."""
    kinds: set[str] = set()

    @hypothesis.settings(max_examples=400, database=None)
    @given(st.sampled_from(sorted(all_tools())), st.data())
    def ask(name: str, data: st.DataObject) -> None:
        model = all_tools()[name].request
        body = data.draw(st.dictionaries(st.sampled_from(sorted(model.model_fields)), ANYTHING, max_size=4) | ANYTHING)
        try:
            model.model_validate_json(json.dumps(body))
        except ValidationError as error:
            kinds.update(item["type"] for item in error.errors())

    ask()
    assert len(kinds) > 8
    assert {kind for kind in kinds if not KOREAN.get(f"invalid.{kind}", "")} == set()


def test_unsuitable_inputs_are_refused_with_the_reason() -> None:
    async def scenario(client: Client) -> None:
        answer = await client.classify("짝만 받는다")
        assert (answer.status, answer.json["detail"]) == (422, "texts.0: 견본 takes pairs: {text, pair}")
        for body in (
            {"questions": [{"question": " ", "context": "글"}]},
            {"questions": [{"question": "?", "context": ""}]},
        ):
            assert (await client.post("/answer", body)).status == 422
        for sentences in (0, 1001, "three", 1.5):
            body = {"articles": [{"text": "글"}], "sentences": sentences}
            assert (await client.post("/summarize", body)).status == 422

    run(scenario)


def test_unknown_paths_and_methods() -> None:
    async def scenario(client: Client) -> None:
        assert (await client.get("/nothing")).status == 404
        assert (await client.get("/classify")).status == 405
        assert (await client.call("PUT", "/classify")).status == 405
        assert (await client.get("/../../etc/passwd")).status == 404
        # A body is none of the reasons there.
        for path, status in (("/health", 405), ("/metrics", 405), ("/nothing", 404)):
            assert (await client.call("POST", path, headers={}, parts=[b"x"])).status == status
        assert client.reads[-3:] == [0, 0, 0]
        assert (await client.get("/nothing")).json["title"] == "no such path"

    run(scenario)


def test_only_known_names_are_answered_where_names_are_given() -> None:
    async def scenario(client: Client) -> None:
        for host, status in (
            ("localhost:8000", 200),
            ("LOCALHOST", 200),
            ("evil.example", 421),
            ("localhost.evil", 421),
            ("", 421),
        ):
            assert (await client.get("/models", {"host": host})).status == status
        assert (await client.get("/models")).status == 421
        # A balancer asks by address.
        for path in ("/health", "/ready"):
            assert (await client.get(path, {"host": "10.0.0.7:8000"})).status == 200

    run(scenario, hosts=("localhost", "[::1]"))


# --- reports ---------------------------------------------------------------------------------------------------------


def test_the_log_has_requests_and_no_texts(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Client) -> None:
        await client.classify(SECRET, "둘째", SECRET)
        await client.classify(SECRET)
        await client.post("/classify", f'{{"texts": ["{SECRET}"'.encode())
        await client.get(f"/{SECRET}", {"x-request-id": "a b", "referer": "x"})
        await client.get("/health", {"x-request-id": "abc-1"})

    with caplog.at_level(logging.INFO):
        run(scenario)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "apps.serve.access"]
    assert [(x["method"], x["path"], x["status"], x["texts"], x["cached"]) for x in lines] == [
        ("POST", "/classify", 200, 3, 0),
        ("POST", "/classify", 200, 1, 1),
        ("POST", "/classify", 422, 0, 0),
        ("GET", "other", 404, 0, 0),
        ("GET", "/health", 200, 0, 0),
    ]
    assert all(x["duration_ms"] >= 0 and x["event"] == "request" for x in lines)
    assert lines[-1]["request_id"] == "abc-1"
    assert len({x["request_id"] for x in lines}) == 5
    assert SECRET not in caplog.text
    assert SECRET[:2] not in caplog.text


def test_figures_count_requests_batches_and_times() -> None:
    async def scenario(client: Client) -> None:
        await client.classify("하나", "둘이")
        await client.post("/classify", b"{")
        await client.get("/nowhere")
        figures = await client.figures()
        assert figures['pressbert_requests_total{path="/classify",status="200"}'] == 1
        assert figures['pressbert_requests_total{path="/classify",status="422"}'] == 1
        assert figures['pressbert_requests_total{path="other",status="404"}'] == 1
        assert figures['pressbert_batch_size_sum{endpoint="classify"}'] == 2
        assert figures['pressbert_request_seconds_count{path="/classify"}'] == 2
        assert figures['pressbert_wait_seconds_count{endpoint="classify"}'] >= 1
        assert figures["pressbert_waiting"] == 0

    run(scenario)


def test_a_draining_server_is_not_ready_and_closes_connections() -> None:
    async def scenario(client: Client) -> None:
        assert (await client.get("/ready")).json == {"status": "ready", "waiting": 0}
        client.serving.is_draining = True
        ready, answer = await client.get("/ready"), await client.classify("마지막")
        assert (ready.status, ready.json["status"]) == (503, "draining")
        assert (answer.status, answer.headers["connection"]) == (200, "close")

    run(scenario)


def test_models_are_listed() -> None:
    async def scenario(client: Client) -> None:
        rows = (await client.get("/models")).json["models"]
        assert [row["endpoint"] for row in rows] == ["classify", "embed", "answer", "summarize"]
        assert rows[0] == {
            "endpoint": "classify",
            "model": "fake",
            "digest": "1" * 64,
            "runtime": "torch",
            "about": {"task": "nsmc"},
        }

    run(scenario)


# --- the description -------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere() -> None:
    async def scenario(client: Client) -> None:
        page = (await client.get("/docs")).body.decode()
        description = (await client.get("/openapi.json")).json
        assert not re.search(r"(?:https?:)?//", page)
        assert "<script" not in page
        for path in description["paths"]:
            assert f" {path}</code>" in page
        assert (await client.get("/")).headers["location"] == "/docs"

    run(scenario)


def test_the_examples_of_the_page_name_the_address_that_was_asked() -> None:
    async def scenario(client: Client) -> None:
        for host, shown in (
            ("localhost:8123", "localhost:8123"),
            ("news.example", "news.example"),
            ("[::1]:9", "&#x27;[::1]:9"),
            ("", "127.0.0.1:8000"),
            ("<b>", "127.0.0.1:8000"),
            ("a b", "127.0.0.1:8000"),
        ):
            page = (await client.get("/docs", {"host": host} if host else {})).body.decode()
            commands = re.findall(r"curl -s (.+?)/classify", page)
            assert commands == [shown], host
            assert "<b>" not in page.replace("<b>글을", "").replace("<p><b>", ""), host

    run(scenario)


def test_the_page_shows_every_field_with_default_and_meaning() -> None:
    async def scenario(client: Client) -> None:
        page = (await client.get("/docs")).body.decode()
        for service in client.serving.services.values():
            for name, part in service.request.model_fields.items():
                assert f"<td><code>{name}</code></td>" in page, name
                assert html.escape(str(part.description)) in page, name
        assert "integer 1…1000" in page

    run(scenario)


def test_the_examples_of_the_description_work() -> None:
    async def scenario(client: Client) -> None:
        description = (await client.get("/openapi.json")).json
        posts = {path: o["post"] for path, o in description["paths"].items() if "post" in o}
        assert set(posts) == {"/classify", "/embed", "/answer", "/summarize"}
        for path, operation in posts.items():
            body = example(operation["requestBody"]["content"]["application/json"]["schema"], description)
            answer = await client.post(path, body)
            assert answer.status == 200, (path, body, answer.body)

    run(scenario)


def values_of(schema: Mapping[str, Any], description: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return values of a JSON schema, as far as ours use it."""
    if "$ref" in schema:
        return values_of(description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]], description)
    if "anyOf" in schema:
        return st.one_of([values_of(kind, description) for kind in schema["anyOf"]])
    match schema.get("type"):
        case "object":
            properties = {name: values_of(kind, description) for name, kind in schema["properties"].items()}
            required = {name: properties.pop(name) for name in schema.get("required", [])}
            return st.fixed_dictionaries(required, optional=properties)
        case "array":
            low, high = schema.get("minItems", 0), min(schema.get("maxItems", 4), 4)
            return st.lists(values_of(schema["items"], description), min_size=low, max_size=high)
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            low, is_open = schema.get("minimum", schema.get("exclusiveMinimum", 0)), "exclusiveMinimum" in schema
            return st.floats(low, schema["maximum"], exclude_min=is_open)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "string":
            texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=min(schema["maxLength"], 40))
            return texts.map(lambda text: text + "글") if "pattern" in schema else texts
        case kind:
            raise AssertionError(f"a schema of type {kind}")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[Client, Callable[[Coroutine[Any, Any, Answer]], Answer]]]:
    """Return a client that stays, and what waits for its answers."""
    loop = asyncio.new_event_loop()
    context = serving(SETTINGS.model_copy(update={"max_waiting": 1000}))
    client = loop.run_until_complete(context.__aenter__())
    yield client, loop.run_until_complete
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()


@hypothesis.settings(max_examples=120)
@given(data=st.data())
def test_what_the_description_allows_is_answered_as_it_says(
    standing: tuple[Client, Callable[[Coroutine[Any, Any, Answer]], Answer]], data: st.DataObject
) -> None:
    client, wait = standing
    description = client.app._app.openapi()
    path = data.draw(st.sampled_from(["/classify", "/embed", "/answer", "/summarize"]))
    operation = description["paths"][path]["post"]
    body = data.draw(values_of(operation["requestBody"]["content"]["application/json"]["schema"], description))
    answer = wait(client.post(path, body))
    broken = "고장" in str(body) or "짝만" in str(body)
    assert answer.status == 200 or broken, answer.body
    response: type[BaseModel] = client.serving.services[path[1:]].response
    response.model_validate_json(answer.body)


@hypothesis.settings(max_examples=150)
@given(
    path=st.sampled_from(["/classify", "/embed", "/answer", "/summarize"]),
    body=st.one_of(
        st.binary(max_size=60),
        ANYTHING,
        st.dictionaries(st.sampled_from(["texts", "questions", "articles", "sentences", "focus"]), ANYTHING),
    ),
)
@pytest.mark.slow
def test_nothing_that_is_sent_is_an_error_of_the_server(
    standing: tuple[Client, Callable[[Coroutine[Any, Any, Answer]], Answer]], path: str, body: Any
) -> None:
    client, wait = standing
    content = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
    answer = wait(client.post(path, content))
    documented = client.app._app.openapi()["paths"][path]["post"]["responses"]
    assert str(answer.status) in documented
    assert answer.status in (200, 413, 422)
    assert answer.status == 200 or answer.json["detail"]


@hypothesis.settings(max_examples=80)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"]),
    path=st.sampled_from(["/classify", "/health", "/docs", "/metrics", "/", "//", "/classify/", "/%00"])
    | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(lambda text: f"/{text}"),
    headers=st.dictionaries(
        st.sampled_from(["content-type", "content-length", "content-encoding", "host", "x-request-id", "accept"]),
        st.text(st.characters(max_codepoint=255), max_size=20),
    ),
)
def test_no_head_of_a_request_is_an_error_of_the_server(
    standing: tuple[Client, Callable[[Coroutine[Any, Any, Answer]], Answer]],
    method: str,
    path: str,
    headers: dict[str, str],
) -> None:
    client, wait = standing
    answer = wait(client.call(method, path, headers=headers, parts=[b"{}"]))
    assert answer.status < 500
