"""Distillation on a task: teachers, what a student starts from, and its loss.

| term | of | weight |
| --- | --- | --- |
| soft | T² · KL(teacher ‖ student), both softened by the temperature T; squared difference of scores | `soft_weight` |
| hard | the loss of fine-tuning, where there is a label | `hard_weight` |
| cosine | 1 − cosine of the last hidden states of all tokens but padding | `cosine_weight` |

Source: Sanh et al. 2019, “DistilBERT, a distilled version of BERT”, section 3 (a second distillation in fine-tuning);
layers, weights of soft and hard, and temperature as in the authors' code, huggingface/transformers-research-projects.
Hinton et al. 2015, section 2.1, for matching the logits on texts without labels, and 5.3 for several teachers; Xie et
al. 2020, “Self-training with Noisy Student improves ImageNet classification”, for students as large as their teachers.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from corpora.documents import read_documents
from corpora.foundation.arrays import read_arrays, write_arrays
from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError, DataError, RecipeError, UsageError
from corpora.foundation.files import fingerprint, sha256
from corpora.foundation.machine import no_file_bars
from downstream.encoders.folder import ModelFolder
from downstream.encoders.weights import load_model
from downstream.families.classification import Classification, Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.finetuning.arguments import finetuning_precision
from downstream.finetuning.batches import NO_LABEL
from downstream.finetuning.prediction import compute_logits, load_finetuned
from downstream.substitutes import shared_texts
from downstream.task import Family, Features, FinetuneConfig, Task, TaskData, TextExample

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

TEACHER_LOGITS = "teacher_logits"
"""Column of a training example: the logits to be learned."""
MASKED_SCORE = -1e4
"""Logit of a position that cannot be an answer."""


class DistillConfig(FinetuneConfig):
    """How a student is trained; fields of `FinetuneConfig` default to the teacher's values."""

    layers: int | None = Field(default=None, ge=1)
    """Layers of the student; None: half of the teacher's."""
    temperature: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    soft_weight: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    hard_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    cosine_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    ngram_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the character n-grams' log-probabilities, added to the teachers' mean logits on unlabelled texts.

    They are not added on labelled texts: there the n-grams have memorised the training labels.
    """


class Unlabelled(Config):
    """Unlabelled texts that a student was also trained on."""

    sha256: str
    """Of the files' bytes, in the order given."""
    num_texts: int
    num_left_out: int
    """Texts or pairs that occur in the evaluation split, in the training split, or earlier in the files."""


class Teacher:
    """A fine-tuned model: students start from its layers and learn its logits."""

    def __init__(self, folder: Path) -> None:
        """Load a fine-tuned folder.

        Raises:
            CheckpointError: it is none, or its layers cannot be selected one by one.
        """
        from transformers import PreTrainedModel

        self._folder = folder
        with no_file_bars():
            model, self.tokenizer, self.task = load_finetuned(folder)
        layers = getattr(getattr(model.base_model, "encoder", None), "layer", None)
        if layers is None or not isinstance(model, PreTrainedModel):
            what = f"the layers of a {model.config.model_type} cannot be removed one by one"
            raise CheckpointError(folder, what, "give a fine-tuned BERT, RoBERTa or ELECTRA")
        self.depth = len(layers)
        """Number of the teacher's layers."""
        teacher: Any = model  # transformers annotates only parts of it
        self._model = teacher.eval().requires_grad_(requires_grad=False)

    def num_layers(self, wanted: int | None) -> int:
        """Return the number of a student's layers; WANTED is None for half of the teacher's.

        Raises:
            RecipeError: WANTED is more than the teacher has.
        """
        if wanted is not None and wanted > self.depth:
            raise RecipeError("distillation", f"layers={wanted}, the teacher has {self.depth}", "set fewer")
        return wanted or max(1, self.depth // 2)

    def student(self, config: DistillConfig) -> Any:
        """Return a model with some of the teacher's layers, and its embeddings and head."""
        from torch import nn

        family = self.task.family
        model = load_model(self._folder, self.tokenizer, family.auto_class, family.head_config())
        encoder = model.base_model.encoder
        encoder.layer = nn.ModuleList(encoder.layer[k] for k in kept_layers(self.depth, config.layers or 1))
        model.config.num_hidden_layers = len(encoder.layer)
        return model

    def loss(self, student: Any, batch: "dict[str, Tensor]", config: DistillConfig) -> "Tensor":
        """Return the weighted sum of soft, hard and cosine loss; see `distillation_loss`."""
        return distillation_loss(self.task.family, student, batch, config, self._outputs)

    def _outputs(self, batch: "dict[str, Tensor]") -> "tuple[Tensor, Any]":
        """Return logits and outputs for a batch."""
        import torch

        inputs = {name: batch[name] for name in self.tokenizer.model_input_names}
        teacher: Any = _OutputRecorder(self._model.to(batch["attention_mask"].device))
        with torch.no_grad():
            return self.task.family.logits(teacher, inputs), teacher.outputs


def distillation_loss(
    family: Family,
    student: Any,
    batch: "dict[str, Tensor]",
    config: DistillConfig,
    teacher: "Callable[[dict[str, Tensor]], tuple[Tensor, Any]] | None" = None,
) -> "Tensor":
    """Return the weighted sum of soft, hard and cosine loss.

    Args:
        family: of the task.
        student: the model that is trained.
        batch: its inputs (B, T) with labels; `NO_LABEL` where there is none. With `TEACHER_LOGITS`, float (B, C), the
            student learns these instead of the teacher's own logits.
        config: weights and temperature.
        teacher: returns logits and outputs for a batch; needed for the cosine loss, and without `TEACHER_LOGITS`.
    """
    import torch.nn.functional as F  # noqa: N812

    mask, target = batch["attention_mask"], batch.get(TEACHER_LOGITS)
    batch = {name: rows for name, rows in batch.items() if name != TEACHER_LOGITS}
    learner: Any = _OutputRecorder(student)
    logits = family.logits(learner, batch)  # (B, …)
    theirs: Any = None
    if teacher is not None and (target is None or config.cosine_weight):
        own, theirs = teacher(batch)
        target = own if target is None else target
    total = config.soft_weight * soft_loss(family, logits, target, mask, config.temperature)
    if config.hard_weight and _has_labels(batch):
        total = total + config.hard_weight * _hard_loss(family, logits, batch, learner.outputs)
    if config.cosine_weight and theirs is not None:
        ours, wanted = (outputs.hidden_states[-1].float() for outputs in (learner.outputs, theirs))  # (B, T, D)
        cosine = F.cosine_similarity(ours, wanted, dim=-1)[mask.bool()]  # (N,)
        total = total + config.cosine_weight * (1 - cosine).mean()
    return total


def _hard_loss(family: Family, logits: "Tensor", batch: "Mapping[str, Tensor]", outputs: Any) -> "Tensor":
    """Return the loss of fine-tuning, of the examples that have a label."""
    import torch.nn.functional as F  # noqa: N812

    if not isinstance(family, Regression):
        loss: Tensor = outputs.loss  # cross-entropy leaves `NO_LABEL` out
        return loss
    has_label = batch["labels"] != NO_LABEL
    return F.mse_loss(logits[has_label, 0].float(), batch["labels"][has_label].float())


class TeacherEnsemble:
    """Teachers whose logits are averaged once, before the first step."""

    def __init__(
        self,
        folders: Sequence[Path],
        labelled: Sequence[TextExample],
        unlabelled: Sequence[TextExample],
        config: DistillConfig,
        *,
        has_own_student: bool = False,
        kept: Path | None = None,
    ) -> None:
        """Keep the teachers and their texts; nothing is computed yet.

        Args:
            folders: of the teachers.
            labelled: training examples.
            unlabelled: texts without a label.
            config: weights and longest input.
            has_own_student: whether the student is another encoder; otherwise it starts from the first teacher.
            kept: folder for the teachers' logits, which other runs read; None: they go with the run's checkpoints.

        Raises:
            UsageError: n-grams have a weight, and there are no unlabelled texts; or logits are to be kept of a teacher
                that computes them during training.
        """
        if config.ngram_weight and not unlabelled:
            what = "n-grams label unlabelled texts alone, and there are none"
            raise UsageError("ngram_weight", what, "give texts with --unlabelled, or leave ngram_weight out")
        self._folders, self._labelled, self._unlabelled, self._config = folders, labelled, unlabelled, config
        self._has_own_student, self._kept = has_own_student, kept
        if kept and not self.is_needed:
            what = "the logits of a single teacher are computed during training"
            raise UsageError("--logits", what, "leave it out, or give --student or more teachers")

    @property
    def is_needed(self) -> bool:
        """Whether there is more than the first teacher, whose logits are computed during training."""
        return self._has_own_student or len(self._folders) > 1 or self._config.ngram_weight > 0

    def recipe(self, task: Task) -> dict[str, Any]:
        """Return the entries of a student's recipe for the teachers, but for one that it starts from.

        Raises:
            UsageError: a teacher was trained on another task, or the task's outputs are not rows of fixed length.
        """
        if self._config.ngram_weight and (not isinstance(task.family, Classification) or self._labelled[0].pair):
            raise UsageError("ngram_weight", f"{task.title} does not label single texts", "leave it out")
        named = self._folders if self._has_own_student else self._folders[1:]
        if not named:
            return {}
        if not isinstance(task.family, Classification | Regression):
            what = f"{task.title} does not label or score a text as a whole"
            fix = "leave --student out" if self._has_own_student else "give a single one"
            raise UsageError("teachers", what, fix)
        for folder in self._folders[1:]:
            if (other := load_finetuned(folder)[2]).name != task.name:
                what = f"it was fine-tuned on {other.name}, the first teacher on {task.name}"
                raise UsageError(folder, what, "give teachers of one task")
        key = "teachers_sha256" if self._has_own_student else "further_teachers_sha256"
        return {key: [ModelFolder(folder).digest() for folder in named]}

    def logits(self, task: Task, cache: Path) -> "npt.NDArray[np.float32]":
        """Return the logits (N, C) to be learned, labelled examples first.

        Each teacher's are cached: in CACHE, or in the folder for all runs.
        """
        family, config = task.family, self._config
        examples = [*self._labelled, *self._unlabelled]
        logits: Any = 0
        for folder in self._folders:
            logits = logits + self._cached_logits(self._kept or cache, folder, examples)
        logits = logits / len(self._folders)
        if config.ngram_weight:
            from downstream.finetuning.ngrams import NgramClassifier

            assert isinstance(family, Classification)
            logger.info("n-grams …")
            ngrams = NgramClassifier([e.text for e in self._labelled], [str(e.label) for e in self._labelled])
            texts = [e.text for e in self._unlabelled]
            logits[len(self._labelled) :] += config.ngram_weight * ngrams.log_probabilities(texts, family.labels)
        single: npt.NDArray[np.float32] = logits.astype(np.float32)
        return single

    def _cached_logits(self, cache: Path, folder: Path, examples: Sequence[TextExample]) -> "npt.NDArray[np.float32]":
        """Return one teacher's logits (N, C), from the file in CACHE if it exists; its name says what they are of."""
        import torch

        # Teachers whose logits are computed during training have this precision, too.
        precision, max_length = finetuning_precision(self._config.precision), self._config.max_length
        texts = [(example.text, example.pair) for example in examples]
        digest = fingerprint([ModelFolder(folder).digest(), precision, max_length, texts])
        path = cache / f"logits-{digest[:16]}.safetensors"
        if not path.is_file():
            model, tokenizer, task = load_finetuned(folder)
            model.to("cuda" if torch.cuda.is_available() else "cpu")
            max_length = min(max_length, tokenizer.model_max_length)
            features = task.family.featurize(examples, tokenizer, max_length, with_labels=False)
            title = f"teacher {folder.name}"
            rows = compute_logits(model, tokenizer, task.family, features, title=title, precision=precision)
            write_arrays(path, {TEACHER_LOGITS: np.stack(rows).astype(np.float32)})
        return read_arrays(path)[TEACHER_LOGITS]


class _OutputRecorder:
    """Calls a model and keeps its last outputs."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.outputs: Any = None

    def __call__(self, **inputs: Any) -> Any:
        self.outputs = self._model(**inputs, output_hidden_states=True)
        return self.outputs


def kept_layers(depth: int, count: int) -> list[int]:
    """Return which of DEPTH layers a student of COUNT starts from: evenly spaced, the first and the last included.

    Of 12 layers these are 0, 2, 4, 7, 9 and 11, as in the authors' code.
    """
    if count == 1:
        return [0]
    return [round(k * (depth - 1) / (count - 1)) for k in range(count)]


def soft_loss(family: Family, logits: Any, target: Any, mask: "Tensor", temperature: float) -> "Tensor":
    """Return the divergence of a student from its teacher, averaged over examples (over tokens for tags).

    Args:
        family: of the task; it defines the logits.
        logits: float (B, …), the student's.
        target: float of the same shape, the teacher's.
        mask: int64 (B, T), 0 for padding.
        temperature: divides both logits; not used for regression.
    """
    import torch.nn.functional as F  # noqa: N812

    logits, target = logits.float(), target.float()
    if isinstance(family, Regression):
        return F.mse_loss(logits, target)
    if isinstance(family, SpanQA):
        is_padding = mask[:, None, :] == 0  # (B, 1, T)
        logits, target = logits.masked_fill(is_padding, MASKED_SCORE), target.masked_fill(is_padding, MASKED_SCORE)
    divergence = F.kl_div(
        F.log_softmax(logits / temperature, -1),
        F.log_softmax(target / temperature, -1),
        reduction="none",
        log_target=True,
    ).sum(-1)  # (B,), (B, 2) or (B, T)
    if isinstance(family, Tagging):
        divergence = divergence[mask.bool()]
    return divergence.mean() * temperature**2


def _has_labels(batch: "Mapping[str, Tensor]") -> bool:
    """Whether any example has a label; the mean over none is NaN."""
    labels = batch.get("labels")
    return labels is None or bool((labels != NO_LABEL).any())


def read_unlabelled(task: Task, paths: Sequence[Path], splits: TaskData) -> tuple[list[TextExample], Unlabelled]:
    """Read unlabelled texts, or pairs of texts for a task of pairs, except those of the task's own splits.

    A pair is a record with the columns `text` and `pair`. Neither of its texts may be in the evaluation split; texts of
    the training split may be, in other pairs.

    Raises:
        UsageError: the task does not label or score texts as a whole.
        DataError: a file cannot be read, or a record of a task of pairs lacks the second text.
    """
    examples = splits.train.examples
    if not isinstance(task.family, Classification | Regression) or not examples:
        what = f"{task.title} does not label or score a text as a whole"
        raise UsageError("--unlabelled", what, "leave the option out")
    is_pairs = examples[0].pair is not None
    # A text of the evaluation split must not be trained on, even without its label.
    refused = {key for example in splits.eval.examples for key in shared_texts(example)}
    seen = {_key_of(example) for example in examples}
    found: list[TextExample] = []
    num_left_out = 0
    for example in _unlabelled_of(paths, is_pairs=is_pairs):
        key = _key_of(example)
        if key in seen or not refused.isdisjoint(shared_texts(example)):
            num_left_out += 1
            continue
        seen.add(key)
        found.append(example)
    logger.info("%d unlabelled texts, %d left out", len(found), num_left_out)
    return found, Unlabelled(sha256=sha256(*paths), num_texts=len(found), num_left_out=num_left_out)


def _key_of(example: TextExample) -> tuple[str, ...]:
    """Return the texts of an example without blanks."""
    return tuple("".join(text.split()) for text in (example.text, example.pair) if text is not None)


def _unlabelled_of(paths: Sequence[Path], *, is_pairs: bool) -> Iterator[TextExample]:
    for path in paths:
        for document in read_documents(path, text_unit="line", fields={"title": "pair"} if is_pairs else None):
            if is_pairs and not document.title.strip():
                fix = "give both texts of a pair: columns text and pair"
                raise DataError(f"{path.parent / document.id}", "no second text, and the task has pairs", fix)
            yield TextExample("", document.text, document.title if is_pairs else None, "")


def unlabelled_features(
    examples: Sequence[TextExample], family: Family, tokenizer: "PreTrainedTokenizerBase", max_length: int
) -> list[Features]:
    """Return features of unlabelled texts, with `NO_LABEL` as their label."""
    features = family.featurize(examples, tokenizer, max_length, with_labels=False) if examples else []
    label = float(NO_LABEL) if isinstance(family, Regression) else NO_LABEL
    return [feature | {"labels": label} for feature in features]
