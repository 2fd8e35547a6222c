"""Checks of parts from outside, in the spirit of scikit-learn's `check_estimator`.

from pressbert.checks import check_encoder, check_reader, check_summarizer, check_task
"""

from corpora.foundation.checks import CheckFailedError, CheckResult
from corpora.readers.checks import check_reader
from downstream.checks.encoder import check_encoder
from downstream.checks.summarizer import check_summarizer
from downstream.checks.task import check_task

__all__ = ["CheckFailedError", "CheckResult", "check_encoder", "check_reader", "check_summarizer", "check_task"]
