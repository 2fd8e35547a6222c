"""The command: `python -m downstream.advertorial FILE…`, and `train`; see `downstream.advertorial`."""

from corpora.foundation.command import run_command
from downstream.advertorial import advertorial
from downstream.signals.command import run


def main(argv: list[str] | None = None) -> int:
    """Find signals, or learn labels, from the command line."""
    return run("advertorial", "Find signals of advertising that is written as news.", advertorial, argv)


if __name__ == "__main__":
    run_command(main)
