"""Korean hate speech, bias: does a comment show gender bias, another bias or none? (Moon et al. 2020)."""

from dataclasses import replace
from functools import partial

from downstream.families.classification import Classification
from downstream.tasks import hate

TASK = replace(
    hate.TASK,
    name="hate-bias",
    title="BEEP! bias",
    family=Classification(labels=("none", "gender", "others")),
    read=partial(hate.read_comments, label_column="bias"),
)
