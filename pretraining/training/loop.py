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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from corpora.foundation.errors import CheckpointError, RecipeError, SuiteError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import keep_freed_memory, matmul_flops_per_s
from pretraining.data.difficulty import OBSERVED, TokenDifficulties
from pretraining.model import PretrainingModel
from pretraining.probes import Probe, probe_scores
from pretraining.recipe import LoopConfig
from pretraining.training.accelerator import compute_dtype
from pretraining.training.batches import BatchSource
from pretraining.training.metrics import METRICS, Report, append_metrics, cut_metrics
from pretraining.training.optimizers import learning_rate, make_optimizers
from pretraining.training.state.averaging import WeightAverage
from pretraining.training.state.checkpoints import load_checkpoint
from pretraining.training.state.folder import find_checkpoint
from pretraining.training.state.progress import DeviceSums, Progress, StepCounters
from pretraining.training.state.tensors import TrainingState

if TYPE_CHECKING:
    from accelerate import Accelerator

logger = logging.getLogger(__name__)

HELD_OUT_EPOCH = 1 << 30
"""Epoch number that seeds the masks of held-out rows: the same at every evaluation, and never reached in training."""
CHARACTERS = "_characters"
"""Suffix of the characters of the tokens that a loss term predicts, among the counts of a step."""
NORM_SUM, NORM_COUNT = "norm_sum", "norm_count"
"""Sum of the gradient's norms before they are clipped, and number of steps, in the sums of a window."""
WAITED = "waited_s"
"""Seconds in which the step waited for its batch, among the sums of a window."""
LOCAL_SUMS = ("_loss", "_correct")
"""Suffixes of the sums that each process keeps of its own rows; all other sums are already over all processes."""
MATMUL_SECONDS = 0.5
"""For the rate of a matrix product: a slow processor takes half a second for one, and every run begins with it."""
CHECKPOINTS = "checkpoints"
STABLE = "stable"
"""Folder of the checkpoint from which an extendable run is lengthened."""


class NonFiniteError(SuiteError):
    """Training diverged (NaN or inf)."""


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
        self._sums = DeviceSums()
        self._counters = StepCounters(accelerator.device)
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
                if self._is_read(self.progress.step):
                    self._read_counters()
                self._count_time(time.perf_counter() - started, waited)
                # Before the checkpoint of the same step: otherwise a kill in between would skip this export for good.
                if self.progress.step in config.export_steps:
                    export(self.progress.step)
                self._after_step(bar)

    def _measure_matmul_rate(self) -> float:
        dtype = compute_dtype(self._config)
        device = self.accelerator.device
        return matmul_flops_per_s(device, dtype, seconds=MATMUL_SECONDS) * int(self.accelerator.num_processes)

    def _matmul_share(self, counts: Mapping[str, float], seconds: float) -> float:
        flops = self._flops.total(counts, self._source.objective.layout.max_length)
        return flops / seconds / self._matmul_rate

    def _batches(self, step: int) -> list[dict[str, Tensor]]:
        batches = self._source.micro_batches(
            step,
            process=self.accelerator.process_index,
            num_processes=self.accelerator.num_processes,
            size=self.micro_batch_size,
            weights=self.difficulties.weights,
        )
        prepared = (self.model.prepare_batch(batch) for batch in batches)
        return [{name: self._pinned(tensor) for name, tensor in batch.items()} for batch in prepared]

    def _step(self, batches: Sequence[Mapping[str, Tensor]]) -> None:
        """Do one optimizer step; nothing is read from the device."""
        config, accelerator, progress = self._config, self.accelerator, self.progress
        # Dropout depends on the step and the process alone.
        torch.manual_seed(int(fingerprint([self._seed, progress.step, accelerator.process_index])[:15], 16))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, progress.step)
        counts, outputs = self._count(batches), DeviceSums()
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last else accelerator.no_sync(self._model):
                outputs.add({name: value.detach() for name, value in self._backward(batch, counts).items()})
        sums = outputs.values
        observed = sums.pop(OBSERVED, None)
        norm = accelerator.clip_grad_norm_(self._model.parameters(), config.clip)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm  # of a sharded model
        is_bad = self._is_not_finite(norm, torch.stack([sums[f"{t.name}_loss"] for t in self._terms]).sum())
        self._update_weights(is_bad)
        if observed is not None:
            every = accelerator.reduce(observed.long(), reduction="sum")
            self.difficulties.observe(torch.where(is_bad, torch.zeros_like(every), every))
        norms = {NORM_SUM: norm.detach(), NORM_COUNT: torch.ones_like(counts["tokens"])}
        self._sums.add(counts | sums | norms, is_bad)
        self._counters.add(counts["tokens"], is_bad)
        self._zero_gradients()
        progress.step += 1
        self.average.update(progress.step)
        self.difficulties.update(progress.step)

    def _update_weights(self, is_bad: Tensor) -> None:
        """Let the optimizers update the weights, which stay as they are if IS_BAD, bool ()."""
        found_inf = is_bad.float()  # as torch's gradient scaler calls it; the optimizers read it on the device
        for optimizer, bare in zip(self._optimizers, self._bare_optimizers, strict=True):
            bare.found_inf = found_inf  # type: ignore[attr-defined]
            optimizer.step()
            del bare.found_inf  # type: ignore[attr-defined]

    def _backward(self, batch: Mapping[str, Tensor], counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Add the gradients of a micro-batch of a step with COUNTS; return what the model does."""
        outputs: dict[str, Tensor] = self._model(**self._on_device(batch))
        # Very short rows may have no predictions.
        losses = [t.weight * outputs[f"{t.name}_loss"] / counts[t.name].clamp(min=1) for t in self._terms]
        # Gradients are averaged over processes; the counts are sums over them.
        self.accelerator.backward(torch.stack(losses).sum() * self.accelerator.num_processes)
        return outputs

    def _on_device(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a batch on the device of this process; from pinned memory nothing waits for the copy."""
        return {name: tensor.to(self.accelerator.device, non_blocking=True) for name, tensor in batch.items()}

    def _zero_gradients(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _is_not_finite(self, norm: Tensor, loss: Tensor) -> Tensor:
        """Return bool (): whether gradient norm (of all processes) or loss (of any) is not; all decide alike."""
        bad = (~torch.isfinite(norm) | ~torch.isfinite(loss)).float()
        if self.accelerator.num_processes > 1:
            bad = self.accelerator.reduce(bad, reduction="sum")
        return bad > 0

    def _count(self, batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the counts of a step, int64 () each, on the device, summed over all processes.

        They are its tokens, the predictions of each loss term by its name, and the characters of predicted tokens.
        """
        numbers = {"tokens": sum(int((batch["sequence_ids"] > 0).sum()) for batch in batches)}
        lengths = self._source.objective.layout.specials.num_characters
        for term in self._terms:
            numbers[term.name] = sum(len(batch[term.counted_by]) for batch in batches)
            if term.token_ids and lengths is not None:
                own = sum(int(lengths[batch[term.token_ids].numpy()].sum()) for batch in batches)
                numbers[term.name + CHARACTERS] = own
        counts = self._pinned(torch.tensor(list(numbers.values()))).to(self.accelerator.device, non_blocking=True)
        if self.accelerator.num_processes > 1:
            counts = self.accelerator.reduce(counts, reduction="sum")
        return dict(zip(numbers, counts, strict=True))

    def _pinned(self, tensor: Tensor) -> Tensor:
        """Return a tensor in memory that a GPU copies while the program goes on."""
        return tensor.pin_memory() if self.accelerator.device.type == "cuda" else tensor

    def _is_read(self, step: int) -> bool:
        """Whether something is written after a step for which the counters are read."""
        config = self._config
        intervals = (config.log_every, config.evaluate_every, config.checkpoint_every)
        return any(step % every == 0 for every in intervals) or step in (
            *config.export_steps,
            config.stable_steps,
            config.steps,
        )

    def _read_counters(self) -> None:
        """Read what the steps have counted, and stop the run if too many of them were skipped in a row."""
        in_a_row = self._counters.read(self.progress)
        if in_a_row > self._config.max_skipped:
            self._stop_non_finite(in_a_row)

    def _stop_non_finite(self, in_a_row: int) -> None:
        progress = self.progress
        where = self._out / CHECKPOINTS
        raise NonFiniteError(
            f"step {progress.step}",
            f"the gradient was not finite in {in_a_row} steps in a row ({progress.skipped} skipped in all)",
            f"lower loop.peak_lr or set loop.precision = 'fp32', and start in another folder; the last finite state is "
            f"kept in {where}",
        )

    def _count_time(self, elapsed_s: float, waited_s: float) -> None:
        self.progress.elapsed_s += elapsed_s
        self.progress.window_s += elapsed_s
        self.progress.window[WAITED] = self.progress.window.get(WAITED, 0.0) + waited_s

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
        sums = progress.window | self._read(self._sums)
        self._sums = DeviceSums()
        progress.window, seconds, progress.window_s = {}, progress.window_s, 0.0
        line: dict[str, Any] = {"step": progress.step}
        if sums.get(NORM_COUNT):
            line |= self._means(sums)
            line["gradient_norm"] = float(np.float32(sums[NORM_SUM]) / np.float32(sums[NORM_COUNT]))
        line["lr"] = learning_rate(self._config, progress.step - 1)
        line["tokens"] = progress.tokens
        line["tokens_per_s"] = round(sums.get("tokens", 0.0) / seconds, 1)
        line["matmul_share"] = round(self._matmul_share(sums, seconds), 4)
        line["waiting_share"] = round(sums[WAITED] / seconds, 5)
        line["skipped"] = progress.skipped
        self._write_line(line)
        shown = {key: line[key] for key in line if key in {"loss", "tokens_per_s"} or key.endswith("_accuracy")}
        text = {key: f"{value:,.0f}" if value > 100 else f"{value:.4f}" for key, value in shown.items()}
        bar.set_postfix(text)
        if bar.disable and accelerator.is_main_process:
            sys.stderr.write(" ".join(f"{key}={value}" for key, value in line.items()) + "\n")

    def _means(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return losses and accuracies from sums over all processes; a term that nothing was predicted for has none."""
        means, loss = {}, 0.0
        for term in self._terms:
            count = sums[term.name]
            if not count:
                continue
            means[f"{term.name}_loss"] = sums[f"{term.name}_loss"] / count
            means[f"{term.name}_accuracy"] = sums[f"{term.name}_correct"] / count
            if characters := sums.get(term.name + CHARACTERS):
                bits = sums[f"{term.name}_loss"] / math.log(2)
                means[f"{term.name}_bits_per_character"] = bits / characters
            loss += term.weight * means[f"{term.name}_loss"]
        return {"loss": loss} | means

    def _read(self, sums: DeviceSums) -> dict[str, float]:
        """Return sums of this process, the local ones added up over all processes; every process must call it."""
        names = [name for name in sums.values if name.endswith(LOCAL_SUMS)]
        if names and self.accelerator.num_processes > 1:
            every = self.accelerator.reduce(torch.stack([sums.values[name] for name in names]), reduction="sum")
            sums.values |= zip(names, every, strict=True)
        return sums.read()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return losses and accuracies on the held-out rows; rows and masks are the same every time."""
        assert self._held_out is not None
        accelerator, source = self.accelerator, self._held_out
        rows = np.arange(min(self._config.evaluate_rows, len(source.corpus)))
        own = rows[accelerator.process_index :: accelerator.num_processes]
        size = self.micro_batch_size
        sums = DeviceSums()
        self._model.eval()
        # Every process computes as many batches as the one with the most rows: a sharded model synchronises in each.
        for first in range(0, -(-len(rows) // accelerator.num_processes), size):
            batch = self.model.prepare_batch(source.held_out_tensors(own[first : first + size], HELD_OUT_EPOCH))
            sums.add(self._count([batch]) | self._model(**self._on_device(batch)))
        self._model.train()
        means = self._means(self._read(sums))
        if "mlm_loss" in means:
            means["perplexity"] = math.exp(min(means["mlm_loss"], 700.0))
        return {f"held_out_{name}": value for name, value in means.items()}

    @property
    def _bare_optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers without accelerate's wrappers."""
        return [optimizer.optimizer for optimizer in self._optimizers]

    @property
    def state(self) -> TrainingState:
        """The tensors of the run."""
        return TrainingState(self._model, self._bare_optimizers, self._names, self.average, self.difficulties)

    def final_weights(self) -> dict[str, Tensor]:
        """Return the parameters to save, or their average if the recipe asks for it; as in `state`."""
        with self.average.in_use():
            # On a CPU the state is the parameters themselves.
            return {name: tensor.clone() for name, tensor in self.state.tensors()[0].items()}

    def save(self, folder: str = CHECKPOINTS) -> None:
        """Write a checkpoint; every process must call it."""
        progress = asdict(self.progress)
        kept = DeviceSums()
        kept.add(self._sums.values)
        progress["window"] |= self._read(kept)
        self.state.save(
            self._out / folder,
            self.progress.step,
            progress,
            keep=self._config.keep_checkpoints,
            by_shards=self._config.sharded_checkpoints,
            is_main=self.accelerator.is_main_process,
        )
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        """Load the newest undamaged checkpoint, if there is one, and delete the metrics after it."""
        share = (self.accelerator.process_index, self.accelerator.num_processes)
        found = find_checkpoint(self._out / CHECKPOINTS, share=share, agree=self._agree)
        if found is not None:
            self.state.restore(found)
            self._restore_progress(Progress(**found.state))
            logger.info("resumed at step %d", self.progress.step)
        if self.accelerator.is_main_process:
            cut_metrics(self._out / METRICS, self.progress.step)

    def _agree(self, is_good: bool) -> bool:
        """Whether something is good on all processes."""
        bad = torch.tensor([0.0 if is_good else 1.0], device=self.accelerator.device)
        return not self.accelerator.reduce(bad, reduction="sum").item()

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
        self.state.restore_optimizers(checkpoint.optimizer)

    def _restore_progress(self, progress: Progress) -> None:
        self.progress = progress
        sums = progress.window
        progress.window = {name: value for name, value in sums.items() if name == WAITED}
        sums = {name: value for name, value in sums.items() if name != WAITED}
        if not self.accelerator.is_main_process:
            # A checkpoint holds the sums over all processes: the main process continues with them, the others with 0.
            sums |= dict.fromkeys((name for name in sums if name.endswith(LOCAL_SUMS)), 0.0)
        self._sums.set(sums, self.accelerator.device)
        self._counters.set(progress.skipped_in_a_row)

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
