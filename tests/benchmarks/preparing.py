"""What a process of a test does before its command; it imports little, since every process imports it."""

import sys
from typing import Any

import downstream.finetuning.arguments


def unpickle_nothing(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class":
        raise AssertionError(f"a pickle is read: {arguments}")


def save_often() -> None:
    """Prepare a process: checkpoints after few steps, of which none is a pickle."""
    downstream.finetuning.arguments.CHECKPOINT_STEPS = 10
    sys.addaudithook(unpickle_nothing)
