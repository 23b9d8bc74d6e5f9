"""Training with TRL: its GRPOTrainer takes the optimiser steps, and its model samples.

Contract:

- TRL asks for rows; `kernelgym_train.run.steps` plays and gives credit; TRL's prompts are ignored;
- sampling and problems follow from seed and step, checkpoints are taken between steps, and a row in
  checkpoints.jsonl makes one count: so a run that was killed and resumed equals the unbroken one
  (bit by bit on a CPU; tests/train/backends/trl/test_resume.py);
- model and judge never work at the same time in one process: a step's answers are sampled in
  batches, judged, and learned from, one after the other. They may share a GPU, timed or not;
- kernels run in the judge's processes. Here they would share a process with the weights.

Steps are finished, evaluated and kept by `kernelgym_train.run.training`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgym import UsageError
from kernelgym_train.backends.trl.loop import TrlLoop
from kernelgym_train.backends.trl.options import grpo_options
from kernelgym_train.models import adapter_options, weights_digest
from kernelgym_train.run.training import Progress, TrainingOutcome

if TYPE_CHECKING:
    from kernelgym_train.backends.trl.trainer import KernelTrainer


def train(progress: Progress, model: Any, tokenizer: Any) -> TrainingOutcome:
    """Train from the checkpoint at which `progress` begins until it ends.

    Args:
        progress: Progress of the run.
        model: Model as it was before any training, without an adapter.
        tokenizer: Tokenizer of the model.

    Raises:
        UsageError: If what was configured does not work.
    """
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise UsageError(
            "TRITON_INTERPRET is set, and TRL's loss would be interpreted, too; unset it (the "
            "judge sets it for its own processes)"
        )
    config, start = progress.config, progress.log.start
    loop = TrlLoop(progress, tokenizer)
    trainer = _make_trainer(progress, loop, model, tokenizer)
    if start is not None and start.step >= config.optimiser.steps:
        # Transformers looks at the number of steps only after having taken one more.
        trainer._load_from_checkpoint(str(start.folder))
        done = start.step
    else:
        try:
            trainer.train(resume_from_checkpoint=None if start is None else str(start.folder))
        finally:
            loop.rests()
        done = trainer.state.global_step // config.optimiser.updates_per_step
    trained = trainer.accelerator.unwrap_model(trainer.model)
    return TrainingOutcome(done, weights_digest(trained), progress.stopped, trained)


def _make_trainer(progress: Progress, loop: TrlLoop, model: Any, tokenizer: Any) -> KernelTrainer:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig

    from kernelgym_train.backends.trl.trainer import KernelTrainer

    config, interrupted = progress.config, progress.interrupted
    folder = progress.log.folder / "checkpoints"
    device = str(model.device)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    options = grpo_options(config, folder, device=device, processes=processes)
    if processes == 1 and device.startswith("cuda"):
        os.environ["ACCELERATE_TORCH_DEVICE"] = device  # or it would be the first GPU
    args = GRPOConfig(**options)
    if processes == 1 and args.n_gpu > 1:
        args._n_gpu = 1  # transformers would otherwise wrap the model in DataParallel
    adapter: Any = None
    if (chosen := adapter_options(config.model)) is not None:
        from peft import LoraConfig

        adapter = LoraConfig(**chosen)

    class Callback(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            _set_rate(trainer, progress.learning_rate)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            loop.rests()
            if state.global_step % config.optimiser.updates_per_step:
                return
            if interrupted.is_set():
                control.should_training_stop = True
            if interrupted.is_set() or state.global_step >= state.max_steps:
                control.should_save = True

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            where = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if state.is_world_process_zero:
                loop.saved(where)

    prompts = Dataset.from_dict({"prompt": [""] * options["num_generations"] * 8})
    trainer = KernelTrainer(
        source=loop,
        updates=config.optimiser.updates_per_step,
        model=model,
        args=args,
        train_dataset=prompts,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=[Callback()],
    )
    trainer.remove_callback(PrinterCallback)
    loop.trainer = trainer
    return trainer


def _set_rate(trainer: Any, rate: float) -> None:
    """Set the learning rate to `rate` times its schedule, unless it is that already."""
    for group in trainer.optimizer.param_groups:
        first = group.get("initial_lr", rate)
        if first != rate:
            group["lr"] *= rate / first
            group["initial_lr"] = rate
    scheduler = getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler)
    scheduler.base_lrs = [rate for _ in scheduler.base_lrs]
    scheduler._last_lr = [group["lr"] for group in trainer.optimizer.param_groups]  # what is logged
