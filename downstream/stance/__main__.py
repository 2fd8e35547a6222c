"""The command: `python -m downstream.stance FILE…`, and `train`; see `downstream.stance`."""

from corpora.foundation.command import run_command
from downstream.signals.command import run
from downstream.stance import stance


def main(argv: list[str] | None = None) -> int:
    """Find signals, or learn labels, from the command line."""
    return run("stance", "Find signals of an article's stance.", stance, argv)


if __name__ == "__main__":
    run_command(main)
