"""The settings of a server, and the services that it loads."""

import time
from collections.abc import Callable
from typing import Any

from pydantic import Field

from apps.serving.tool import Service, all_tools
from corpora.foundation.config import Config
from corpora.foundation.errors import UsageError, suggest

ANY_ADDRESS = "*.address"
"""Entry of the allowed host names: IP addresses, as a client on this network writes them."""


class Settings(Config):
    """Tools and limits of a server; every worker process loads its own models."""

    tools: dict[str, str] = Field(default_factory=dict)
    """Tool → folder or hub id of its model, or `bundled`."""
    runtime: str = "auto"
    max_batch: int = Field(default=32, ge=1)
    """Texts of a batch."""
    max_batch_characters: int = Field(default=8192, ge=1)
    max_waiting: int = Field(default=256, ge=1)
    """Texts that may wait in a worker."""
    timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds from the complete request to its answer."""
    body_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds for the body of a request to arrive."""
    max_body_bytes: int = Field(default=1 << 20, ge=1)
    """Bytes of a body, packed or not."""
    max_connections: int = Field(default=1024, ge=8)
    """Connections of a worker; fewer where the system allows fewer open files."""
    head_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds for the head of a request to arrive."""
    cache_bytes: int = Field(default=64 << 20, ge=0)
    drain_s: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Seconds for connections to end when the server stops."""


def load_services(settings: Settings, report: Callable[..., object] = lambda *_, **__: None) -> dict[str, Service]:
    """Load every tool in the settings, and compute one input with each.

    Args:
        settings: which tools, and how they run.
        report: called with an event and its fields, before and after each tool is loaded.

    Raises:
        SuiteError: a model cannot be loaded.
    """
    known = all_tools()
    services = {}
    for number, (name, source) in enumerate(sorted(settings.tools.items()), start=1):
        if name not in known:
            raise UsageError("apps.serve", f"unknown tool '{name}'", suggest(name, known))
        fields: dict[str, Any] = {"tool": name, "model": source, "number": number, "of": len(settings.tools)}
        report("loading", **fields)
        began = time.perf_counter()
        services[name] = service = known[name].open(source, settings.runtime)
        service.compute([service.sample])
        report("loaded", **fields, runtime=service.runtime, seconds=round(time.perf_counter() - began, 1))
    return services
