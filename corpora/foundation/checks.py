"""Checks of a part that somebody else wrote, each with a name, in the spirit of scikit-learn's `check_estimator`.

TASK_CHECKS = Checks("task")

@TASK_CHECKS.add
def has_a_name(task: Task) -> None:
    assert task.name, "the name is empty"
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from corpora.foundation.errors import SuiteError

logger = logging.getLogger(__name__)

OnFail: TypeAlias = Literal["raise", "warn", "return"]
"""What a failed check does: raise at the first one, log a warning for each, or only be returned."""


class CheckFailedError(SuiteError, AssertionError):
    """A part does not do what every part of its kind does."""


class NotApplicableError(Exception):
    """Raised by a check that says nothing of this part; the reason is its message."""


@dataclass(frozen=True)
class CheckResult:
    """What a check found."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    reason: str = ""


@dataclass(frozen=True)
class Checks:
    """The checks of one kind of part, in order."""

    kind: str
    functions: list[Callable[[Any], None]] = field(default_factory=list)

    def add(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Add a check: it asserts, and its first words of the docstring say what a part has to do."""
        self.functions.append(function)
        return function

    def run(self, part: Any, name: str, on_fail: OnFail = "raise") -> list[CheckResult]:
        """Run every check on a part.

        Args:
            part: what each check gets.
            name: used in messages.
            on_fail: see `OnFail`.

        Returns:
            What each check found, in order; skipped ones say why.

        Raises:
            CheckFailedError: a check failed and `on_fail` is `raise`.
            ValueError: `on_fail` is unknown.
        """
        if on_fail not in {"raise", "warn", "return"}:
            raise ValueError(f"on_fail={on_fail!r}: choose raise, warn or return")
        results = [self._result(function, part) for function in self.functions]
        for result in results:
            if result.status != "failed" or on_fail == "return":
                continue
            error = CheckFailedError(f"{self.kind} {name}", f"{result.name}: {result.reason}", "correct it")
            if on_fail == "raise":
                raise error
            logger.warning("%s", error)
        return results

    @staticmethod
    def _result(function: Callable[[Any], None], part: Any) -> CheckResult:
        try:
            function(part)
        except NotApplicableError as error:
            return CheckResult(function.__name__, "skipped", str(error))
        except AssertionError as error:
            return CheckResult(function.__name__, "failed", " ".join(str(error).split()) or "it does not hold")
        except Exception as error:  # what a part may not raise is what is looked for
            return CheckResult(function.__name__, "failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
        return CheckResult(function.__name__, "passed")
