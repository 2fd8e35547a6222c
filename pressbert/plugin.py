"""What plug-ins are made of, from one place; `examples/plugin/` shows three of them.

    from pressbert import plugin as pb

The groups of entry points are those of `corpora.foundation.plugins`.
"""

from apps.desk.checkers import Checker, Correction
from apps.serving.function_tool import function_tool
from apps.serving.tool import Service, TextItem, Tool
from corpora.cleaning import Step
from corpora.foundation.errors import DataError, SuiteError
from corpora.official import OfficialFile
from corpora.readers.decoding import BadLine, read_decoded
from corpora.readers.records import FileReader, Record
from downstream.families.classification import Classification, Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.metrics import Metric, accuracy, macro_f1, pearson
from downstream.runtimes.backends import Backend
from downstream.task import Answer, FinetuneConfig, QuestionExample, Task, TextExample

__all__ = [
    "Answer",
    "Backend",
    "BadLine",
    "Checker",
    "Classification",
    "Correction",
    "DataError",
    "FileReader",
    "FinetuneConfig",
    "Metric",
    "OfficialFile",
    "QuestionExample",
    "Record",
    "Regression",
    "Service",
    "SpanQA",
    "Step",
    "SuiteError",
    "Tagging",
    "Task",
    "TextExample",
    "TextItem",
    "Tool",
    "accuracy",
    "function_tool",
    "macro_f1",
    "pearson",
    "read_decoded",
]
