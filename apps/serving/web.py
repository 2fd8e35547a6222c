"""The web application: limits checked before parsing, routes, metrics, health, and one line of log for a request.

No log, metric or error message contains a text of a request.
"""

import asyncio
import contextlib
import inspect
import json
import logging
import os
import re
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.serving.batching import Batcher, Job, OverloadedError
from apps.serving.cache import ResultCache
from apps.serving.metrics import Metrics
from apps.serving.page import describe
from apps.serving.schemas import Models, Problem, ServedModel, State
from apps.serving.services import Service, Settings, UnsuitableError

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("apps.serve.access")

DISCARD_FACTOR = 4
"""Bodies up to this multiple of the limit are read before they are refused; larger ones are not read at all."""
TITLES = {
    400: "malformed",
    404: "no such path",
    405: "method not allowed",
    408: "the request took too long to arrive",
    413: "the request is too large",
    415: "JSON only",
    421: "wrong host",
    422: "not valid for this endpoint",
    500: "internal error",
    503: "overloaded",
}
IS_KNOWN_HOST = "pressbert.is_known_host"
REQUEST_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
TEXTS = {
    "classify": ("글을 분류한다", "두 글을 견주는 모델에는 text와 pair를 준다. 글마다 결과 하나를 차례대로 돌려준다."),
    "embed": ("글을 벡터로 바꾼다", "벡터의 길이는 1이고, 두 벡터의 내적이 클수록 두 글이 비슷하다."),
    "answer": ("글에서 질문의 답을 찾는다", "답은 글에서 그대로 옮긴 것이다. 답이 없으면 is_answered가 거짓이다."),
    "summarize": (
        "기사를 요약한다",
        "고른 문장을 기사에 나온 차례대로 돌려준다. start와 end는 코드 포인트로 센 자리다.",
    ),
}
"""Endpoint → summary and description."""
PROBES = ("/health", "/ready")
"""Paths that load balancers request by address, under any host name; they reveal nothing of the texts."""
REFUSALS: Mapping[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": TITLES[code]} for code in (400, 408, 413, 415, 421, 422, 500, 503)
}


class RefusalError(Exception):
    """A request that is refused with a problem (RFC 9457)."""

    def __init__(
        self, status: int, detail: str, *, errors: Sequence[str] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        """Keep status, detail, errors and headers of the answer."""
        super().__init__(detail)
        self.status, self.detail, self.errors, self.headers = status, detail, errors, dict(headers or {})

    def response(self) -> Response:
        """Return the answer."""
        problem = Problem(
            title=TITLES.get(self.status, "refused"), status=self.status, detail=self.detail, errors=list(self.errors)
        )
        return json_response(problem.model_dump_json().encode(), status=self.status, headers=self.headers)


def json_response(content: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response that no proxy caches."""
    return Response(content, status, {"cache-control": "no-store"} | dict(headers or {}), "application/json")


class Serving:
    """State shared by all requests of a worker: models, queue, cache, metrics."""

    def __init__(self, services: Mapping[str, Service], settings: Settings, metrics: Metrics) -> None:
        """Start with an empty queue and an empty cache."""
        self.services, self.settings, self.metrics = services, settings, metrics
        self.cache = ResultCache(settings.cache_bytes)
        self.batcher = Batcher(
            max_waiting=settings.max_waiting,
            max_batch=settings.max_batch,
            max_cost=settings.max_batch_characters,
            observe=metrics.observe_batch,
        )
        self.is_draining = False

    async def respond(self, service: Service, body: Any) -> tuple[bytes, int, int]:
        """Answer a request; returns JSON, the number of its texts, and how many of them came from the cache.

        Raises:
            RefusalError: the model cannot answer it, or the worker is overloaded.
        """
        try:
            items = service.items(body)
        except UnsuitableError as error:
            raise RefusalError(422, str(error)) from error
        keys = [self.cache.key(service.digest, service.endpoint, item.settings, *item.texts) for item in items]
        values = {key: self.cache.get(key) for key in keys}
        found = sum(values[key] is not None for key in keys)
        missing = {key: item for key, item in zip(keys, items, strict=True) if values[key] is None}
        if missing:
            jobs = [Job(service.group(item), service.compute, item, service.cost(item)) for item in missing.values()]
            try:
                results = await self.batcher.submit(jobs, timeout_s=self.settings.timeout_s)
            except OverloadedError as error:
                self.metrics.refused.labels(error.reason).inc()
                raise RefusalError(503, error.reason, headers={"retry-after": str(error.retry_after_s)}) from error
            for key, value in zip(missing, results, strict=True):
                self.cache.put(key, value)
                values[key] = value
        self.metrics.observe_texts(service.endpoint, cached=found, computed=len(items) - found)
        self.metrics.waiting.set(self.batcher.num_waiting)
        parts = [service.show(item, values[key] or b"null") for key, item in zip(keys, items, strict=True)]
        content = b'{"model":' + to_json(service.model) + b',"results":[' + b",".join(parts) + b"]}"
        return content, len(items), found


def make_app(serving: Serving, *, hosts: Iterable[str] = ()) -> ASGIApp:
    """Return the application.

    Args:
        serving: what it serves.
        hosts: allowed host names; none: any.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        serving.batcher.start()
        yield
        # Accepted jobs are finished; the loop stays free to deliver them.
        await asyncio.to_thread(serving.batcher.close)

    app = FastAPI(
        title="PressBERT",
        summary="한국어 뉴스 요약, 분류, 임베딩, 질의응답",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    for service in serving.services.values():
        _add_service(app, serving, service)
    _add_reports(app, serving)
    app.add_exception_handler(RefusalError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_by_starlette)
    app.add_exception_handler(Exception, internal_error)
    return RequestMiddleware(app, serving, frozenset(hosts))


def _add_service(app: FastAPI, serving: Serving, service: Service) -> None:
    async def endpoint(request: Request) -> Response:
        try:
            body = service.request.model_validate_json(await request.body())
        except ValidationError as error:
            reasons = [
                f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors(include_input=False)
            ]
            raise RefusalError(422, "the body does not fit", errors=reasons[:20]) from None
        content, request.scope["pressbert.texts"], request.scope["pressbert.cached"] = await serving.respond(
            service, body
        )
        return json_response(content)

    class Route(APIRoute):
        """A route whose body pydantic parses in one pass; FastAPI's own parsing takes longer than a small model."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            return endpoint

    async def signature() -> None:
        """Represent the endpoint in the OpenAPI description, where its body is a parameter."""

    documented: Any = signature
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    documented.__signature__ = inspect.Signature(
        [inspect.Parameter("body", kind, annotation=service.described or service.request)]
    )
    app.router.add_api_route(
        f"/{service.endpoint}",
        documented,
        methods=["POST"],
        response_model=service.response,
        responses=dict(REFUSALS),
        summary=TEXTS[service.endpoint][0],
        description=TEXTS[service.endpoint][1],
        operation_id=service.endpoint,
        route_class_override=Route,
    )


def _add_reports(app: FastAPI, serving: Serving) -> None:
    @app.get("/health", summary="살아 있는가", response_model=State)
    async def health() -> Response:
        return json_response(State(status="ok").model_dump_json().encode())

    @app.get("/ready", summary="요청을 받을 수 있는가", response_model=State, responses={503: {"model": State}})
    async def ready() -> Response:
        waiting = serving.batcher.num_waiting
        status = "ready"
        if serving.is_draining:
            status = "draining"
        elif waiting >= serving.settings.max_waiting:
            status = "overloaded"
        state = State.model_validate({"status": status, "waiting": waiting})
        return json_response(state.model_dump_json().encode(), status=200 if status == "ready" else 503)

    @app.get("/models", summary="올라와 있는 모델", response_model=Models)
    async def models() -> Response:
        rows = [
            ServedModel(endpoint=s.endpoint, model=s.model, digest=s.digest, runtime=s.runtime, about=s.about)
            for s in serving.services.values()
        ]
        return json_response(Models(models=rows).model_dump_json().encode())

    @app.get("/metrics", summary="Prometheus 지표", response_class=Response)
    async def metrics() -> Response:
        content, media_type = await asyncio.to_thread(serving.metrics.render)
        return Response(content, media_type=media_type)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(describe(app.openapi()))

    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return error.response()


async def _refuse_by_starlette(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return RefusalError(error.status_code, str(error.detail), headers=error.headers).response()


async def internal_error(_request: Request, _error: Exception) -> Response:
    """Return the answer to a request that failed inside the server."""
    return RefusalError(500, "it is logged under the request's id").response()


class RequestMiddleware:
    """Checks host, and size, type and arrival time of bodies; writes metrics and a line of log for each request."""

    def __init__(self, app: ASGIApp, serving: Serving, hosts: frozenset[str]) -> None:
        """Wrap APP; HOSTS are the allowed names, none: any."""
        self._app, self._serving = app, serving
        self._hosts = TrustedHostMiddleware(_accept_host, allowed_hosts=list(hosts) or ["*"], www_redirect=False)
        self._takes_body = {f"/{name}" for name in serving.services}
        self._paths = self._takes_body | {"/health", "/ready", "/models", "/metrics", "/docs"}

    @property
    def serving(self) -> Serving:
        """The state of the wrapped application."""
        return self._serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection's event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
                if self._serving.is_draining:
                    # A later request on this connection would fail.
                    extra.append((b"connection", b"close"))
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        body = b""
        try:
            if scope["path"] not in PROBES:
                await self._check_host(scope, receive)
            # Anything else is answered with 404 or 405, whatever its body.
            if scope["method"] == "POST" and scope["path"] in self._takes_body:
                body = await self._read_body(headers, receive)
                receive = _once(body)
            await self._app(scope, receive, answer)
        except RefusalError as error:
            await error.response()(scope, receive, answer)
        except Exception as error:  # the outermost layer: any error becomes a 500 and a line of log
            frames = [
                f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}"
                for f in traceback.extract_tb(error.__traceback__)
            ]
            # Error messages may contain texts of the request; positions in the code do not.
            logger.error(_line(event="error", request_id=request_id, kind=type(error).__name__, frames=frames[-8:]))
            if not status:
                await (await internal_error(Request(scope), error))(scope, receive, answer)
        finally:
            took = time.perf_counter() - started
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._serving.metrics.observe_request(path, status, took)
            access_logger.info(
                _line(
                    event="request",
                    request_id=request_id,
                    method=scope["method"] if scope["method"].isalpha() else "other",
                    path=path,
                    status=status,
                    duration_ms=round(1000 * took, 3),
                    body_bytes=len(body),
                    texts=scope.get("pressbert.texts", 0),
                    cached=scope.get("pressbert.cached", 0),
                )
            )

    async def _check_host(self, scope: Scope, receive: Receive) -> None:
        """Refuse unknown host names: a web page could make its own name resolve to this machine."""
        await self._hosts(scope, receive, _discard)
        if not scope.get(IS_KNOWN_HOST):
            raise RefusalError(421, "this server is not known by that name", headers={"connection": "close"})

    async def _read_body(self, headers: Mapping[bytes, str], receive: Receive) -> bytes:
        """Return the body if it is JSON, within the limit, and arrives in time."""
        limit, close = self._serving.settings.max_body_bytes, {"connection": "close"}
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        is_json = kind == "application/json" and headers.get(b"content-encoding", "identity") == "identity"
        too_large = RefusalError(413, f"the body may have {limit:,} bytes", headers=close)
        declared = headers.get(b"content-length", "0")
        most = DISCARD_FACTOR * limit
        if not declared.isascii() or not declared.isdigit() or int(declared) > most:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._serving.settings.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusalError(400, "the body ended early")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise too_large
                    if size <= limit:
                        parts.append(part)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            detail = f"the body must arrive within {self._serving.settings.body_timeout_s:g} s"
            raise RefusalError(408, detail, headers=close) from None
        # Only now: a client refused while sending would see a broken connection instead of the reason.
        if size > limit:
            raise too_large
        if not is_json:
            raise RefusalError(415, "send plain application/json")
        return b"".join(parts)


async def _accept_host(scope: Scope, _receive: Receive, _send: Send) -> None:
    scope[IS_KNOWN_HOST] = True


async def _discard(_message: Message) -> None:
    """Ignore the plain text with which Starlette refuses a host."""


def _once(body: bytes) -> Receive:
    """Return a stream that consists of a body."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    return receive


def _line(**fields: Any) -> str:
    """Return a line of structured log."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"time": now, "worker": os.getpid()} | fields, ensure_ascii=False)
