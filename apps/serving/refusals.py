"""Refused requests: a problem (RFC 9457) whose sentences are there in English and in Korean.

No sentence contains a text of the request.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from apps.serving.schemas import Problem
from apps.serving.tool import ENGLISH, KOREAN, UnsuitableError

STATUSES = (400, 404, 405, 408, 413, 415, 421, 422, 500, 503)
MAX_ERRORS = 20
REFUSALS: Mapping[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": f"{KOREAN(f'title.{code}')} · {ENGLISH(f'title.{code}')}"}
    for code in STATUSES
    if code not in (404, 405)
}
"""Answers of every tool besides its results, for the description."""


class RefusalError(Exception):
    """A request that is refused."""

    def __init__(
        self,
        status: int,
        key: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        location: str = "",
        **values: Any,
    ) -> None:
        """Keep the parts of the answer.

        Args:
            status: of HTTP.
            key: of the reason, under `server` in the catalogue of texts.
            errors: what is wrong at which location, in English and Korean.
            headers: of the answer.
            location: where the reason applies in the request.
            values: what the reason names.
        """
        super().__init__(key)
        before = f"{location}: " if location else ""
        self.status, self.errors, self.headers = status, errors, dict(headers or {})
        self.detail, self.detail_ko = before + ENGLISH(key, **values), before + KOREAN(key, **values)

    def response(self) -> Response:
        """Return the answer."""
        problem = Problem(
            title=ENGLISH(f"title.{self.status}"),
            title_ko=KOREAN(f"title.{self.status}"),
            status=self.status,
            detail=self.detail,
            detail_ko=self.detail_ko,
            errors=[english for english, _ in self.errors],
            errors_ko=[korean for _, korean in self.errors],
        )
        return json_response(problem.model_dump_json().encode(), status=self.status, headers=self.headers)


def json_response(content: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response that no proxy caches."""
    return Response(content, status, {"cache-control": "no-store"} | dict(headers or {}), "application/json")


def unsuitable(error: UnsuitableError) -> RefusalError:
    """Return the refusal of a request that a model cannot answer."""
    return RefusalError(422, error.key, location=error.location, **error.values)


def invalid(error: ValidationError) -> RefusalError:
    """Return the refusal of a body that does not fit its schema."""
    found = error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
    return RefusalError(422, "detail.invalid", errors=[_sentences(item) for item in found])


def _sentences(error: Any) -> tuple[str, str]:
    """Return location and reason of an error of pydantic, in English and Korean."""
    location = ".".join(map(str, error["loc"])) or "body"
    key = f"invalid.{error['type']}"
    key = key if KOREAN.get(key, "") else "invalid.other"
    limits = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in error.get("ctx", {}).items()
    }
    limits |= {"reason": error["msg"]}
    return f"{location}: {ENGLISH(key, **limits)}", f"{location}: {KOREAN(key, **limits)}"


def refused_by_starlette(error: HTTPException) -> RefusalError:
    """Return the refusal of a path or method that does not exist."""
    key = f"detail.{error.status_code}" if error.status_code in (404, 405) else "detail.other"
    status = error.status_code if error.status_code in STATUSES else 400
    return RefusalError(status, key, headers=error.headers)
