"""The pretraining loop, on accelerate: one CPU, one GPU, or many processes by `torchrun` or `accelerate launch`.

A step is a function of (recipe, data, seed, step): rows, masks and dropout carry no state from step to step, except
for the difficulties of adaptive masks, which are part of every checkpoint. A run that is killed and resumed is
therefore bit-identical to an uninterrupted one.
"""

import concurrent.futures
import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from corpora.foundation.errors import CheckpointError, RecipeError, SuiteError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import keep_freed_memory, matmul_flops_per_s
from pretraining.data.difficulty import ENTRY as DIFFICULTY_ENTRY
from pretraining.data.difficulty import OBSERVED, TokenDifficulties
from pretraining.model import PretrainingModel
from pretraining.probes import Probe, probe_scores
from pretraining.recipe import LoopConfig
from pretraining.training.accelerator import compute_dtype
from pretraining.training.state.averaging import ENTRY as AVERAGE_ENTRY
from pretraining.training.state.averaging import WeightAverage
from pretraining.training.batches import BatchSource
from pretraining.training.state.checkpoints import (
    Checkpoint,
    gather_state,
    load_checkpoint,
    restore_optimizers,
    save_checkpoint,
)
from pretraining.training.metrics import METRICS, Report, append_metrics, cut_metrics
from pretraining.training.optimizers import learning_rate, make_optimizers

if TYPE_CHECKING:
    from accelerate import Accelerator

logger = logging.getLogger(__name__)

HELD_OUT_EPOCH = 1 << 30
"""Epoch number that seeds the masks of held-out rows: the same at every evaluation, and never reached in training."""
CHARACTERS = "_characters"
"""Suffix of the characters of the tokens that a loss term predicts, among the counts of a step."""
NORM_SUM, NORM_COUNT = "norm_sum", "norm_count"
"""Sum of the gradient's norms before they are clipped, and number of steps, in the sums of a window."""
LOCAL_SUMS = ("_loss", "_correct")
"""Suffixes of the sums that each process keeps of its own rows; all other sums are already over all processes."""
CHECKPOINTS = "checkpoints"
STABLE = "stable"
"""Folder of the checkpoint from which an extendable run is lengthened."""


class NonFiniteError(SuiteError):
    """Training diverged (NaN or inf)."""


@dataclass
class Progress:
    """Counters in the state of a run."""

    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Tokens seen, special ones included, padding excluded."""
    elapsed_s: float = 0.0
    """Step time summed over all resumed runs."""
    skipped: int = 0
    """Steps that were skipped because their gradient was not finite."""
    skipped_in_a_row: int = 0
    window: dict[str, float] = field(default_factory=dict)
    """Sums since the last line of `metrics.jsonl`."""
    window_s: float = 0.0


class Trainer:
    """The training of one model: data, optimizers and state."""

    def __init__(
        self,
        model: PretrainingModel,
        source: BatchSource,
        held_out: BatchSource | None,
        config: LoopConfig,
        accelerator: "Accelerator",
        out: Path,
    ) -> None:
        """Put the model and its optimizers on this process's device.

        Args:
            model: with its initial weights.
            source: training batches.
            held_out: rows for evaluation, if there are any.
            config: settings of the loop.
            accelerator: of this process.
            out: folder for `metrics.jsonl` and `checkpoints/`.

        Raises:
            RecipeError: the batch cannot be divided evenly among the processes.
        """
        sizes = [config.batch_size, *(stage.batch_size or config.batch_size for stage in config.stages)]
        if uneven := [size for size in sizes if size % accelerator.num_processes]:
            what = f"loop.batch_size={uneven[0]} is not divisible by {accelerator.num_processes} processes"
            raise RecipeError("recipe", what, "make it a multiple of the number of processes")
        self.model, self.accelerator = model, accelerator
        self._source, self._held_out, self._config, self._out = source, held_out, config, out
        self.micro_batch_size = max(1, config.batch_size // accelerator.num_processes)
        """Rows that this process computes at a time; `auto` is resolved by the run."""
        if isinstance(config.micro_batch_size, int):
            self.micro_batch_size = config.micro_batch_size
        self._seed = source.objective.layout.seed
        self._terms = source.objective.terms
        if accelerator.device.type == "cpu":
            keep_freed_memory()
        # Every number of tokens would be compiled by itself.
        model.unpads = model.unpads and not config.compile
        model.use_attention(accelerator.device)
        self.num_parameters = sum(p.numel() for p in model.parameters())
        self._flops = model.flops()
        self._names = [name for name, _ in model.named_parameters()]
        if config.recompute_activations:
            model.recompute_activations()
        if config.compile:
            model.encoder.compile()
        self._model: Any
        self._optimizers: list[Any]
        self._model, *self._optimizers = accelerator.prepare(model, *make_optimizers(model, config))
        self.progress = Progress()
        self.probes: list[Probe] = []
        """Labels that are predicted at every evaluation."""
        self.reports: Sequence[Report] = ()
        """What shows the lines of metrics as they are written."""
        self.average = WeightAverage(
            self._names,
            list(self._model.parameters()),
            first_step=1 + config.steps - round(config.average_last * config.steps),
        )
        objective = source.objective
        self.difficulties = TokenDifficulties(objective.layout.specials.vocab_size, objective.update_every)
        self._matmul_rate = 0.0

    def train(self, export: Callable[[int], None] = lambda _: None) -> None:
        """Run from the last checkpoint to the last step.

        Args:
            export: called by every process after the steps of `export_steps`, and again if a run resumes before one.

        Raises:
            CheckpointError: every checkpoint is damaged, or the newest does not fit the model.
            NonFiniteError: too many steps in a row had no finite gradient.
            ResultError: a checkpoint cannot be written.
        """
        config = self._config
        self._resume()
        self._matmul_rate = self._measure_matmul_rate()
        with contextlib.ExitStack() as stack:
            bar = stack.enter_context(self._progress_bar())
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            prefetched: concurrent.futures.Future[list[dict[str, Tensor]]] | None = None
            while self.progress.step < config.steps:
                started = time.perf_counter()
                batches = self._batches(self.progress.step) if prefetched is None else prefetched.result()
                following = self.progress.step + 1
                # Masks that depend on the predictions of this step cannot be drawn ahead.
                is_ready = following < config.steps and not self.difficulties.is_due(following)
                prefetched = pool.submit(self._batches, following) if is_ready else None
                waited = time.perf_counter() - started
                self._step(batches)
                self._count_time(time.perf_counter() - started, waited)
                # Before the checkpoint of the same step: otherwise a kill in between would skip this export for good.
                if self.progress.step in config.export_steps:
                    export(self.progress.step)
                self._after_step(bar)

    def _measure_matmul_rate(self) -> float:
        dtype = compute_dtype(self._config)
        return matmul_flops_per_s(self.accelerator.device, dtype) * int(self.accelerator.num_processes)

    def _matmul_share(self, counts: Mapping[str, float], seconds: float) -> float:
        flops = self._flops.total(counts, self._source.objective.layout.max_length)
        return flops / seconds / self._matmul_rate

    def _batches(self, step: int) -> list[dict[str, Tensor]]:
        return self._source.micro_batches(
            step,
            process=self.accelerator.process_index,
            num_processes=self.accelerator.num_processes,
            size=self.micro_batch_size,
            weights=self.difficulties.weights,
        )

    def _step(self, batches: Sequence[Mapping[str, Tensor]]) -> None:
        """Do one optimizer step."""
        config, accelerator, progress = self._config, self.accelerator, self.progress
        # Dropout depends on the step and the process alone.
        torch.manual_seed(int(fingerprint([self._seed, progress.step, accelerator.process_index])[:15], 16))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, progress.step)
        sums = self._count(batches)
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last else accelerator.no_sync(self._model):
                outputs = self._backward(batch, sums)
            for name, value in outputs.items():
                sums[name] = sums.get(name, 0.0) + value.detach()
        observed = sums.pop(OBSERVED, None)
        norm = accelerator.clip_grad_norm_(self._model.parameters(), config.clip)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm  # of a sharded model
        if self._are_finite(norm, torch.stack([sums[f"{t.name}_loss"] for t in self._terms]).sum()):
            for optimizer in self._optimizers:
                optimizer.step()
            progress.skipped_in_a_row = 0
            if observed is not None:
                self.difficulties.observe(accelerator.reduce(observed.long(), reduction="sum"))
            for name, value in (sums | {NORM_SUM: norm.detach(), NORM_COUNT: 1.0}).items():
                progress.window[name] = progress.window.get(name, 0.0) + value
        else:
            progress.skipped += 1
            progress.skipped_in_a_row += 1
        self._zero_gradients()
        progress.tokens += int(sums["tokens"])
        progress.step += 1
        self.average.update(progress.step)
        self.difficulties.update(progress.step)
        if progress.skipped_in_a_row > config.max_skipped:
            self._stop_non_finite()

    def _backward(self, batch: Mapping[str, Tensor], counts: Mapping[str, float]) -> dict[str, Tensor]:
        """Add the gradients of a micro-batch of a step with COUNTS; return what the model does."""
        outputs: dict[str, Tensor] = self._model(
            **{k: tensor.to(self.accelerator.device) for k, tensor in batch.items()}
        )
        # Very short rows may have no predictions.
        losses = [t.weight * outputs[f"{t.name}_loss"] / max(1.0, counts[t.name]) for t in self._terms]
        # Gradients are averaged over processes; the counts are sums over them.
        self.accelerator.backward(torch.stack(losses).sum() * self.accelerator.num_processes)
        return outputs

    def _zero_gradients(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _are_finite(self, norm: Tensor, loss: Tensor) -> bool:
        """Whether gradient norm (of all processes) and loss (of this one) are finite; all processes decide alike."""
        bad = (~torch.isfinite(norm) | ~torch.isfinite(loss)).float()
        if self.accelerator.num_processes > 1:
            bad = self.accelerator.reduce(bad, reduction="sum")
        return not bool(bad)

    def _count(self, batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
        """Return the counts of a step, summed over all processes.

        They are its tokens, the predictions of each loss term by its name, and the characters of predicted tokens.
        """
        numbers = {"tokens": sum(int((batch["sequence_ids"] > 0).sum()) for batch in batches)}
        lengths = self._source.objective.layout.specials.num_characters
        for term in self._terms:
            numbers[term.name] = sum(len(batch[term.counted_by]) for batch in batches)
            if term.token_ids and lengths is not None:
                own = sum(int(lengths[batch[term.token_ids].numpy()].sum()) for batch in batches)
                numbers[term.name + CHARACTERS] = own
        counts = torch.tensor(list(numbers.values()), dtype=torch.float64)
        if self.accelerator.num_processes > 1:
            kind = torch.float64 if self.accelerator.device.type != "mps" else torch.float32
            counts = self.accelerator.reduce(counts.to(self.accelerator.device, kind), reduction="sum").cpu()
        return dict(zip(numbers, counts.tolist(), strict=True))

    def _stop_non_finite(self) -> None:
        progress = self.progress
        where = self._out / CHECKPOINTS
        raise NonFiniteError(
            f"step {progress.step}",
            f"the gradient was not finite in {progress.skipped_in_a_row} steps in a row "
            f"({progress.skipped} skipped in all)",
            f"lower loop.peak_lr or set loop.precision = 'fp32', and start in another folder; the last finite state is "
            f"kept in {where}",
        )

    def _count_time(self, elapsed_s: float, waited_s: float) -> None:
        self.progress.elapsed_s += elapsed_s
        self.progress.window_s += elapsed_s
        self.progress.window["waited_s"] = self.progress.window.get("waited_s", 0.0) + waited_s

    def _after_step(self, bar: Any) -> None:
        config, step = self._config, self.progress.step
        last = step == config.steps
        bar.update(1)
        if step % config.log_every == 0 or last:
            self._log(bar)
        if (step % config.evaluate_every == 0 or last) and (self._held_out is not None or self.probes):
            with self.average.in_use() if last else contextlib.nullcontext():
                scores = {} if self._held_out is None else self.evaluate()
                scores |= probe_scores(self.probes, self.model, self.accelerator.device)
                self._write_line({"step": step} | scores)
        # Before the checkpoint of the same step, for the same reason as an export.
        if config.extendable and step == config.stable_steps and self.progress.skipped_in_a_row == 0:
            self.save(STABLE)
        # The state before a skipped step may already be diverging: it must not replace a good checkpoint.
        if (step % config.checkpoint_every == 0 or last) and self.progress.skipped_in_a_row == 0:
            self.save()

    def _log(self, bar: Any) -> None:
        """Write one line of metrics, the means over the steps since the last line."""
        progress, accelerator = self.progress, self.accelerator
        sums = progress.window
        progress.window, seconds, progress.window_s = {}, progress.window_s, 0.0
        line: dict[str, Any] = {"step": progress.step}
        if "tokens" in sums:
            line |= self._means(sums)
        if NORM_COUNT in sums:
            line["gradient_norm"] = float(sums[NORM_SUM] / sums[NORM_COUNT])
        line["lr"] = learning_rate(self._config, progress.step - 1)
        line["tokens"] = progress.tokens
        line["tokens_per_s"] = round(sums.get("tokens", 0.0) / seconds, 1)
        line["matmul_share"] = round(self._matmul_share(sums, seconds), 4)
        line["waiting_share"] = round(sums["waited_s"] / seconds, 5)
        line["skipped"] = progress.skipped
        self._write_line(line)
        shown = {key: line[key] for key in line if key in {"loss", "tokens_per_s"} or key.endswith("_accuracy")}
        text = {key: f"{value:,.0f}" if value > 100 else f"{value:.4f}" for key, value in shown.items()}
        bar.set_postfix(text)
        if bar.disable and accelerator.is_main_process:
            sys.stderr.write(" ".join(f"{key}={value}" for key, value in line.items()) + "\n")

    def _means(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """Return losses and accuracies over all processes from the sums of this one."""
        total = self._sum_over_processes(sums)
        means, loss = {}, 0.0
        for term in self._terms:
            count = max(1.0, sums[term.name])
            means[f"{term.name}_loss"] = total[f"{term.name}_loss"] / count
            means[f"{term.name}_accuracy"] = total[f"{term.name}_correct"] / count
            if characters := sums.get(term.name + CHARACTERS):
                bits = total[f"{term.name}_loss"] / math.log(2)
                means[f"{term.name}_bits_per_character"] = bits / characters
            loss += term.weight * means[f"{term.name}_loss"]
        return {"loss": loss} | means

    def _sum_over_processes(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """Return the local sums, added up over all processes; every process must call it."""
        names = [name for name in sums if name.endswith(LOCAL_SUMS)]
        if not names:
            return {}
        values = torch.stack([torch.as_tensor(sums[name], dtype=torch.float32) for name in names])
        if self.accelerator.num_processes > 1:
            values = self.accelerator.reduce(values.to(self.accelerator.device), reduction="sum")
        return dict(zip(names, values.double().tolist(), strict=True))

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return losses and accuracies on the held-out rows; rows and masks are the same every time."""
        assert self._held_out is not None
        accelerator, source = self.accelerator, self._held_out
        rows = np.arange(min(self._config.evaluate_rows, len(source.corpus)))
        own = rows[accelerator.process_index :: accelerator.num_processes]
        size = self.micro_batch_size
        sums: dict[str, Any] = {}
        self._model.eval()
        # Every process computes as many batches as the one with the most rows: a sharded model synchronises in each.
        for first in range(0, -(-len(rows) // accelerator.num_processes), size):
            batch = source.held_out_tensors(own[first : first + size], HELD_OUT_EPOCH)
            counts = self._count([batch])
            outputs = self._model(**{name: tensor.to(accelerator.device) for name, tensor in batch.items()})
            for name, value in (counts | outputs).items():
                sums[name] = sums.get(name, 0.0) + value
        self._model.train()
        means = self._means(sums)
        if "mlm_loss" in means:
            means["perplexity"] = math.exp(min(means["mlm_loss"], 700.0))
        return {f"held_out_{name}": value for name, value in means.items()}

    @property
    def _bare_optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers without accelerate's wrappers."""
        return [optimizer.optimizer for optimizer in self._optimizers]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return parameters and optimizer state by name; on the main process unsharded and on the CPU."""
        parameters, entries = gather_state(self._model, self._bare_optimizers, self._names)
        return parameters, entries | self.average.entries() | self.difficulties.entries()

    def final_weights(self) -> dict[str, Tensor]:
        """Return the parameters to save, or their average if the recipe asks for it; as in `state`."""
        with self.average.in_use():
            # On a CPU the state is the parameters themselves.
            return {name: tensor.clone() for name, tensor in self.state()[0].items()}

    def save(self, folder: str = CHECKPOINTS) -> None:
        """Write a checkpoint; every process must call it."""
        parameters, entries = self.state()
        progress = asdict(self.progress)
        window = self.progress.window
        progress["window"] = {name: float(value) for name, value in window.items()} | self._sum_over_processes(window)
        if self.accelerator.is_main_process:
            checkpoint = Checkpoint(self.progress.step, parameters, entries, progress)
            save_checkpoint(self._out / folder, checkpoint, keep=self._config.keep_checkpoints)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        """Load the newest undamaged checkpoint, if there is one, and delete the metrics after it."""
        checkpoint = load_checkpoint(self._out / CHECKPOINTS)
        if checkpoint is not None:
            self._restore(checkpoint)
        if self.accelerator.is_main_process:
            cut_metrics(self._out / METRICS, self.progress.step)

    def carry_state(self, folder: Path) -> None:
        """Continue with the optimizers' state of another run, from the checkpoint that it keeps as extendable.

        Raises:
            CheckpointError: there is none, or it is of another model.
        """
        checkpoint = load_checkpoint(folder / STABLE)
        if checkpoint is None:
            raise CheckpointError(folder / STABLE, "no checkpoint", "train that run with loop.extendable = true")
        if {name: list(tensor.shape) for name, tensor in checkpoint.model.items()} != {
            name: list(parameter.shape) for name, parameter in self.model.named_parameters()
        }:
            what = "its parameters are not those of this model"
            raise CheckpointError(folder / STABLE, what, "give the run of a model of the same shape")
        self._restore_optimizers(checkpoint)

    def _restore(self, checkpoint: Checkpoint) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

        if sorted(checkpoint.model) != sorted(self._names):
            what = "its parameters are not those of this model"
            raise CheckpointError(self._out / CHECKPOINTS, what, "start in another folder with --out")
        options = StateDictOptions(full_state_dict=True, strict=False)
        set_model_state_dict(self._model, dict(checkpoint.model), options=options)
        self.average.restore(checkpoint.optimizer)
        self.difficulties.restore(checkpoint.optimizer)
        self._restore_optimizers(checkpoint)
        self.progress = Progress(**checkpoint.state)
        if not self.accelerator.is_main_process:
            # A checkpoint holds the sums over all processes: the main process continues with them, the others with 0.
            self.progress.window |= dict.fromkeys(
                (name for name in self.progress.window if name.endswith(LOCAL_SUMS)), 0.0
            )
        logger.info("resumed at step %d", self.progress.step)

    def _restore_optimizers(self, checkpoint: Checkpoint) -> None:
        own = (AVERAGE_ENTRY, DIFFICULTY_ENTRY)
        entries = {k: v for k, v in checkpoint.optimizer.items() if not k.endswith(own[0]) and not k.startswith(own[1])}
        restore_optimizers(self._model, self._bare_optimizers, entries)

    def _write_line(self, line: Mapping[str, Any]) -> None:
        if not self.accelerator.is_main_process:
            return
        append_metrics(self._out / METRICS, line)
        for report in self.reports:
            report(line)

    def _progress_bar(self) -> Any:
        from tqdm import tqdm

        return tqdm(
            total=self._config.steps,
            initial=self.progress.step,
            desc="pretrain",
            unit="step",
            disable=None if self.accelerator.is_main_process else True,
        )
