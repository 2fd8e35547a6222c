"""Benchmark of the demo: waiting times of visitors for a first paint, a summary and a page change, and memory.

    python -m benchmarks.demo --rounds 5

Starts the demo and a headless Chromium on this machine, and prints a Markdown table. Needs `pressbert[demo]`,
Playwright and a Chromium. Run it on an idle machine.
"""

import contextlib
import functools
import http.client
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corpora.documents import read_documents
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import UsageError
from corpora.foundation.files import SAMPLE_ROOT
from corpora.foundation.machine import cpu_name

APP = Path(__file__).resolve().parents[1] / "apps" / "demo.py"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 120_000
START_S = 120


@contextlib.contextmanager
def running_demo() -> Iterator[tuple[str, int]]:
    """Run the demo; yields its address and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.headless", "true"]
    process = subprocess.Popen([*command, "--server.port", str(port)], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > until:
                raise UsageError("streamlit", "the demo does not start", "see the messages of make demo")
            time.sleep(0.1)
        yield f"http://localhost:{port}", process.pid
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("localhost", port, timeout=2)
    try:
        connection.request("GET", "/_stcore/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each action, one for each round; the first visitor is counted separately.

    Raises:
        UsageError: there is no Playwright or Chromium.
    """
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UsageError("playwright", "is not installed", "pip install playwright") from error
    if path is None:
        raise UsageError("chromium", "is not installed", "apt-get install chromium")
    article = next(iter(read_documents(SAMPLE_ROOT / "news.jsonl")))
    seconds: dict[str, list[float]] = {}
    with running_demo() as (address, pid), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        for number in range(rounds + 1):
            page = browser.new_context(locale="ko-KR").new_page()
            page.set_default_timeout(WAIT_MS)
            first = " of all" if number == 0 else ""

            def clock(name: str, act: Callable[[], Any], sign: str, page: Any = page) -> None:
                started = time.perf_counter()
                act()
                page.wait_for_selector(sign)
                seconds.setdefault(name, []).append(time.perf_counter() - started)

            clock(f"first paint{first}", functools.partial(page.goto, address), "h1")
            page.wait_for_selector("textarea")
            page.locator("textarea").first.fill(article.text)
            button = page.locator("[data-testid=stFormSubmitButton] button")
            clock(f"summary{first}", button.click, "mark.pb-chosen")
            clock(f"leaderboard page{first}", page.locator("a[href$=leaderboard]").first.click, ".pb-board")
            page.context.close()
        browser.close()
        status = Path(f"/proc/{pid}/status")
        if status.is_file():
            line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
            sys.stderr.write(f"memory: {int(line.split()[1]) / 1000:,.0f} MB\n")
    return seconds


def main(argv: list[str] | None = None) -> int:
    """Measure from the command line."""
    parser = ArgumentParser("python -m benchmarks.demo", "Measure how long visitors of the demo wait.")
    parser.add_argument("--rounds", type=int, default=5, help="visitors, one after another (default: 5)")
    arguments = parser.parse(argv)
    if arguments.rounds < 1:
        raise UsageError("--rounds", f"{arguments.rounds} is less than 1", "give 1 or more")
    rows = [
        f"| {name} | {statistics.median(values):.2f} | {max(values):.2f} | {len(values)} |"
        for name, values in measure(arguments.rounds).items()
    ]
    head = [
        f"Processor: {cpu_name()}",
        "",
        "| what | median s | longest s | visitors |",
        "| --- | ---: | ---: | ---: |",
    ]
    sys.stdout.write("\n".join([*head, *rows]) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
