"""The web application: limits checked before parsing, routes, metrics, health, and one line of log for a request.

No log, metric or error message contains a text of a request.
"""

import asyncio
import contextlib
import inspect
import ipaddress
import json
import logging
import os
import re
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
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
from apps.serving.bodies import CLOSE, read_body
from apps.serving.cache import ResultCache
from apps.serving.metrics import Metrics
from apps.serving.page import describe
from apps.serving.refusals import REFUSALS, RefusalError, invalid, json_response, refused_by_starlette, unsuitable
from apps.serving.schemas import Models, ServedModel, State
from apps.serving.services import ANY_ADDRESS, Settings
from apps.serving.tool import ENGLISH, KOREAN, Service, UnsuitableError

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("apps.serve.access")

IS_KNOWN_HOST = "pressbert.is_known_host"
HOST = re.compile(r"[\w.-]{1,253}(?::\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](?::\d{1,5})?", re.ASCII)
REQUEST_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
PROBES = ("/health", "/ready")
"""Paths that load balancers request by address, under any host name; they reveal nothing of the texts."""


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
            raise unsuitable(error) from error
        keys = [self.cache.key(service.digest, service.endpoint, item.settings, *item.texts) for item in items]
        values = {key: self.cache.get(key) for key in keys}
        found = sum(values[key] is not None for key in keys)
        missing = {key: item for key, item in zip(keys, items, strict=True) if values[key] is None}
        if missing:
            jobs = [
                Job(service.group(item), service.compute, item, service.cost(item), service.endpoint)
                for item in missing.values()
            ]
            try:
                results = await self.batcher.submit(jobs, timeout_s=self.settings.timeout_s)
            except OverloadedError as error:
                self.metrics.refused.labels(error.reason).inc()
                after = {"retry-after": str(error.retry_after_s)}
                raise RefusalError(503, f"overloaded.{error.reason.replace(' ', '_')}", headers=after) from error
            except UnsuitableError as error:
                raise unsuitable(error) from error
            for key, value in zip(missing, results, strict=True):
                if service.is_cached:
                    self.cache.put(key, value)
                values[key] = value
        self.metrics.observe_texts(service.endpoint, cached=found, computed=len(items) - found)
        self.metrics.waiting.set(self.batcher.num_waiting)
        parts = [service.show(item, values[key] or b"null") for key, item in zip(keys, items, strict=True)]
        rows = parts[0] if service.is_whole else b"[" + b",".join(parts) + b"]"
        content = b'{"model":' + to_json(service.model) + b',"results":' + rows + b"}"
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
        summary=KOREAN("page.summary"),
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
            raise invalid(error) from None
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
        summary=KOREAN.get(f"tool.{service.endpoint}.summary", service.endpoint),
        description="\n\n".join(
            texts.get(f"tool.{service.endpoint}.about", inspect.getdoc(service.request) or "")
            for texts in (KOREAN, ENGLISH)
        ),
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
    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(describe(app.openapi(), address_of(request)))

    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")


def address_of(request: Request) -> str:
    """Return the address by which a client reached this server, without `http://`, which is curl's default."""
    host = request.headers.get("host", "")
    if not HOST.fullmatch(host):
        name, port = request.scope.get("server") or ("localhost", 80)
        host = f"{f'[{name}]' if ':' in name else name}:{port}"
    return f"https://{host}" if request.scope["scheme"] == "https" else host


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return error.response()


async def _refuse_by_starlette(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused_by_starlette(error).response()


async def internal_error(_request: Request, _error: Exception) -> Response:
    """Return the answer to a request that failed inside the server."""
    return RefusalError(500, "detail.logged").response()


class RequestMiddleware:
    """Checks host, and size, type and arrival time of bodies; writes metrics and a line of log for each request."""

    def __init__(self, app: ASGIApp, serving: Serving, hosts: frozenset[str]) -> None:
        """Wrap APP; HOSTS are the allowed names, none: any."""
        self._app, self._serving = app, serving
        self._takes_addresses = ANY_ADDRESS in hosts
        names = list(hosts - {ANY_ADDRESS}) or ["*"]
        self._hosts = TrustedHostMiddleware(_accept_host, allowed_hosts=names, www_redirect=False)
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
                await self._check_host(headers, scope, receive)
            if b"transfer-encoding" in headers and b"content-length" in headers:
                # Two lengths of one body: a proxy may believe the other one, and take the rest for a request.
                raise RefusalError(400, "detail.two_lengths", headers=CLOSE)
            # Anything else is answered with 404 or 405, whatever its body.
            if scope["method"] == "POST" and scope["path"] in self._takes_body:
                body = await read_body(headers, receive, self._serving.settings)
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

    async def _check_host(self, headers: Mapping[bytes, str], scope: Scope, receive: Receive) -> None:
        """Refuse unknown host names: a web page could make its own name resolve to this machine."""
        if self._takes_addresses and _is_address(headers.get(b"host", "")):
            return
        await self._hosts(scope, receive, _discard)
        if not scope.get(IS_KNOWN_HOST):
            raise RefusalError(421, "detail.unknown_host", headers={"connection": "close"})


def _is_address(host: str) -> bool:
    """Whether a Host header names an IP address, perhaps with a port."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
