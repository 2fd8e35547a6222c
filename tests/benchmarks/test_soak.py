"""The soak: what it counts, what it takes for a fault, and a short one of a server in this process."""

import argparse
import asyncio
import os
from collections import Counter

import pytest

pytest.importorskip("fastapi", reason="needs the packages of the server: pip install 'pressbert[serve]'")

from benchmarks.soak import Figures, Sample, page, soak
from tests.attacks.test_http import port

__all__ = ["port"]


def test_faults_are_named() -> None:
    figures = Figures()
    figures.add(200, False, 0.1)
    figures.add(503, True, 0.1)
    figures.samples = [Sample({1: 100.0, k: 50.0}, {1: 10, k: 10}) for k in range(2, 14)]
    assert figures.faults() == []
    assert figures.quarters() == ((100.0, 100.0), (10, 10))
    figures.samples[-3:] = [Sample({1: 200.0}, {1: 500})] * 3
    figures.add(503, False, 0.1)
    figures.add(0, False, 0.1)
    figures.health[False] += 1
    names = ["lost answers", "answers of 5xx", "health checks without an answer", "memory grows", "descriptors grow"]
    assert figures.faults() == names
    arguments = argparse.Namespace(clients=1, slow=2, workers=1, kill_every=0)
    assert f"Not as it must be: {', '.join(names)}." in page(figures, arguments, [])
    assert figures.errors == Counter({503: 1})


def test_a_short_soak_loses_nothing(port: int) -> None:
    load = {"seconds": 1.5, "requests": 0, "num_clients": 3, "num_slow": 3, "kill_every_s": 0}
    figures = asyncio.run(soak(os.getpid(), port, paths=[b"/classify"], **load))
    assert figures.faults() == []
    assert figures.statuses[200] > 20
    assert figures.health[True] >= 3
    assert set(figures.slow) <= {"408", ""}
    assert figures.slow["408"] > 2
