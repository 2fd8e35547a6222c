"""The command: `python -m downstream.clickbait FILE…`, and `train`; see `downstream.clickbait`."""

from corpora.foundation.command import run_command
from downstream.clickbait import clickbait
from downstream.signals.command import run
from downstream.signals.finding import Findings


def find(text: str, title: str) -> Findings:
    """Find signals in a headline; an article without one is its own headline."""
    return clickbait(title, text) if title else clickbait(text)


def main(argv: list[str] | None = None) -> int:
    """Find signals, or learn labels, from the command line."""
    return run("clickbait", "Find signals of clickbait.", find, argv)


if __name__ == "__main__":
    run_command(main)
