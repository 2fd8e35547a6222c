"""Long work: it ends, fails or is cancelled, and stops when nobody looks."""

import threading
import time

import pytest

import apps.demo_pages.work
from apps.demo_pages.work import Job, Progress


def test_a_job_reports_progress_and_gives_its_result() -> None:
    go = threading.Event()

    def work(progress: Progress) -> int:
        progress("embed", 3, 10)
        assert go.wait(10)
        return 7

    job = Job(work)
    while not job.progress.step:
        time.sleep(0.01)
    assert (job.state, job.progress.step, job.progress.done, job.progress.total) == ("running", "embed", 3, 10)
    go.set()
    assert job.wait(10)
    assert (job.state, job.result) == ("done", 7)


def test_a_failure_is_kept() -> None:
    job = Job(lambda _: 1 // 0)
    assert job.wait(10)
    assert job.state == "failed"
    assert isinstance(job.error, ZeroDivisionError)


def endless(progress: Progress) -> None:
    while True:
        progress("embed")
        time.sleep(0.01)


def test_cancelled_work_stops_at_its_next_step() -> None:
    job = Job(endless)
    assert not job.wait(0.1)
    job.progress.cancel()
    assert job.wait(10)
    assert job.state == "cancelled"


def test_work_that_nobody_looks_at_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps.demo_pages.work, "ABANDONED_S", 0.3)
    job = Job(endless)
    for _ in range(10):
        job.progress.look()
        assert not job.wait(0.05)
    assert job.wait(10)
    assert job.state == "cancelled"
