"""Sections of a training configuration: every setting with its default and its help.

The docstring under each field is its help. Sections that a module needs as they are stand there:
`kernelgym_train.rollout.sampling.Curriculum` and `kernelgym_train.metrics.guards.GuardRules`. What
fits together is `kernelgym_train.config.config`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from kernelgym.feedback import FEEDBACK_TOKENS
from kernelgym.prompts.observer import HISTORY_TOKENS
from kernelgym.rewards import RewardPreset, RewardSchedule, reward_schedule
from kernelgym.types import GAMMA, ReturnVariant
from kernelgym_train.config.settings import Settings, Several
from kernelgym_train.credit.credit import Normaliser
from kernelgym_train.metrics.guards import Share


class RunConfig(Settings):
    """Settings of the run itself: name, folder, backend, seed and checkpoints."""

    name: str = "run"
    """Name of the run, and of its folder."""
    folder: str = "runs"
    """Folder that the runs are kept in."""
    backend: Literal["trl", "tinker"] = "trl"
    """Backend that samples answers and takes optimiser steps."""
    options: Several[str] = ()
    """Options of the backend itself as name=value, which replace those derived from other settings;
    for trl those of GRPOConfig, such as vllm_gpu_memory_utilization=0.4."""
    seed: NonNegativeInt = 0
    """Seed of all random numbers of the run."""
    save_every: PositiveInt = 10
    """Number of steps between checkpoints."""
    keep_checkpoints: PositiveInt = 3
    """Number of checkpoints that are kept, beside the first and the best."""


class ModelConfig(Settings):
    """Settings of the model that is trained."""

    id: str = "Qwen/Qwen2.5-Coder-7B-Instruct"
    """Name on the Hugging Face hub, or the path of a folder."""
    revision: str = ""
    """Commit, tag or branch on the hub; the newest if empty."""
    tokenizer: str = ""
    """Name or folder of the tokenizer, with its chat template; those of model.id if empty."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the weights; auto is bfloat16 on a GPU that has it, else float32."""
    device: str = "auto"
    """Device of the model: cpu, cuda:0, or auto for a GPU if there is one."""
    lora_rank: NonNegativeInt = 32
    """Rank of the LoRA adapter; 0 trains all weights."""
    lora_alpha: PositiveInt = 64
    """Scale of the adapter (LoRA's alpha); it is divided by the rank."""
    lora_dropout: Share = 0.0
    """Dropout probability at the adapter's input."""
    lora_targets: Several[str] = ("all-linear",)
    """Ends of the names of the modules that get an adapter."""
    modules_to_save: Several[str] = ()
    """Modules that are trained whole beside the adapter, such as lm_head."""
    quantisation: Literal["none", "4bit", "8bit"] = "none"
    """Quantisation of the frozen weights, passed to the backend (QLoRA)."""
    gradient_checkpointing: bool = True
    """Whether to compute activations again in the backward pass instead of keeping them in
    memory."""


class EnvConfig(Settings):
    """Settings of problems and episodes. Kernels run on the judge's device."""

    suite: str = "KernelBench"
    """Name of a suite, or the path of a folder of problems."""
    levels: Several[int] = ()
    """Levels to train on; all if empty."""
    problems: str = ""
    """Ids, numbers or a range such as 1-20,33; all if empty."""
    split: str = ""
    """Split to train on, such as train (KernelBench) or rl (Synthetic); all problems if empty."""
    sizes: Literal["full", "small"] = "full"
    """Sizes of KernelBench's problems: full, or small for a machine without a large GPU."""
    language: str = "triton"
    """Language of the kernels."""
    ruleset: str = "strict"
    """Ruleset that kernels are judged by."""
    max_turns: PositiveInt = 4
    """Largest number of answers of an episode."""
    prompt: Literal["full", "short"] = "full"
    """Kind of the prompt: full, or short for a model that was taught the task and the form of an
    answer. short gives the task in a line, the reference, and the last answer with its outcome; it
    takes no env.examples, and env.context has no effect on it."""
    stop: str = "correct"
    """Rule that ends an episode early: correct, never, speedup:<x> or no_improvement:<k>."""
    context: str = "recent"
    """Policy for showing earlier turns: last, recent, best, kernels, window, whole, transcript."""
    context_tokens: PositiveInt = HISTORY_TOKENS
    """Largest number of tokens that earlier turns take in a prompt."""
    feedback: str = "standard"
    """Amount of feedback: minimal, standard or profile."""
    feedback_tokens: int = FEEDBACK_TOKENS
    """Largest number of tokens of one turn's feedback."""
    examples: int | str = "one_shot"
    """Worked examples in the prompt: zero_shot, one_shot, few_shot, or how many."""


class RetrievalConfig(Settings):
    """Settings of retrieval: similar solved problems shown in prompts; see docs/retrieval.md."""

    index: str = ""
    """Name of an index (synthetic), or the folder of one; empty to show none."""
    k: int = 3
    """Largest number of entries that a prompt shows."""
    tokens: int = 2000
    """Largest number of tokens that the entries take; an entry is shown whole or not at all."""
    least: float = 0.3
    """Smallest similarity of an entry that is shown, from -1 to 1; without one the prompt says
    nothing about solved problems."""
    when: Literal["first", "always"] = "first"
    """Time at which entries are shown: before the first answer only (first), or the same ones at
    every turn (always)."""
    same_problem: bool = False
    """Whether to show entries of the problem that is asked, too."""
    model: str = ""
    """Folder or hub name of the index's embedding model, if it moved since the index was built."""
    archive: bool = False
    """Whether to show the correct kernels of the run's own earlier steps, too."""

    @property
    def on(self) -> bool:
        """True if prompts show entries."""
        return bool(self.index)


class PartWeights(Settings):
    """Weights of the reward's parts, which replace those of the preset; null keeps the preset's."""

    format: float | None = None
    """Weight of the answer's form, paid for an answer that could be parsed."""
    compile: float | None = None
    """Weight of a kernel that compiles."""
    trials: float | None = None
    """Weight of the share of calls whose outputs agreed with the reference."""
    correct: float | None = None
    """Weight of a correct kernel."""
    speed: float | None = None
    """Weight of a correct kernel's speed; needs judge.timing."""
    improvement: float | None = None
    """Weight of a speedup over the best earlier turn; needs judge.timing."""
    custom: float | None = None
    """Weight of the share of a correct kernel's time that is its own work."""
    length: float | None = None
    """Weight of the shortness of a correct kernel's source."""
    thinking: float | None = None
    """Weight of thinking before the answer; shorter thinking earns more."""

    @property
    def given(self) -> dict[str, float]:
        """Weights that are set, by part."""
        return self.model_dump(exclude_none=True)


class RewardConfig(Settings):
    """Settings of the score of a turn, and of how scores become returns."""

    preset: str | Mapping[int, str] = "stage2"
    """Reward preset, or several by their first step, as in {0: stage1, 200: stage2}."""
    weights: PartWeights = PartWeights()
    """Weights that replace those of the preset, at every step."""
    gamma: Share = GAMMA
    """Discount factor over the turns of an episode."""
    returns: ReturnVariant = "sum"
    """Return of a turn: the sum of the discounted scores from it on, or their max."""

    @property
    def schedule(self) -> RewardSchedule:
        """Return the presets by the first step at which each applies, with `weights` in effect.

        Raises:
            UnknownName: If a preset is not known.
            UsageError: If steps or weights cannot be; see `kernelgym.rewards.RewardPreset`.
        """
        schedule, given = reward_schedule(self.preset), self.weights.given
        if not given:
            return schedule
        entries = schedule.entries
        return RewardSchedule(tuple((step, _weighted(preset, given)) for step, preset in entries))


def _weighted(preset: RewardPreset, given: Mapping[str, float]) -> RewardPreset:
    """Return a preset with weights given; its name tells them."""
    weights = replace(preset.weights, **given)
    looks = weights.speed or weights.improvement
    return replace(
        preset,
        name=f"{preset.name}+" + ",".join(f"{part}={value:g}" for part, value in given.items()),
        weights=weights,
        speed="optional" if looks and preset.speed == "none" else preset.speed,
    )


class SamplingConfig(Settings):
    """Settings of the sampling of a step's episodes."""

    problems_per_step: PositiveInt = 8
    """Number of groups of a step; each group plays one problem."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Number of trajectories of a group, which are compared with each other."""
    refill_rounds: NonNegativeInt = 2
    """Number of extra rounds that replace groups whose returns do not differ; 0 makes the step
    smaller instead."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature; credit assumes 1."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: share of the probability that tokens are sampled from; credit assumes 1."""
    max_prompt_tokens: PositiveInt = 8192
    """Largest number of tokens of a prompt, earlier turns included."""
    max_new_tokens: PositiveInt = 4096
    """Largest number of tokens of an answer."""
    engine: Literal["transformers", "vllm_colocate", "vllm_server"] = "transformers"
    """Program by which a local model generates; vLLM is passed to the backend."""
    batch_size: PositiveInt = 64
    """Number of answers that a local model generates in one batch."""
    at_once: PositiveInt | None = None
    """Largest number of a step's trajectories that are played at the same time with a model on a
    service; all if null. A local model answers those of a step together."""
    thinking: bool = True
    """Whether to switch thinking on, where the chat template has such a switch."""


class TinkerConfig(Settings):
    """Settings of the Tinker service that trains; read with run.backend=tinker only."""

    base_url: str = ""
    """Address of the service, such as http://127.0.0.1:8004; if empty, the environment variable
    TINKER_BASE_URL, or else the hosted service."""
    start_from: str = ""
    """Weights of another run that the adapter begins with, such as tinker://.../weights/step-000100
    (state_path in a run's checkpoints.jsonl); the optimiser's state is new. A fresh adapter if
    empty."""
    dro_beta: PositiveFloat = 0.05
    """Weight of the quadratic penalty of optimiser.loss=dro."""
    answer_timeout_s: PositiveFloat = 600.0
    """Seconds after which the request for an answer is repeated, twice, and then given up."""
    step_timeout_s: PositiveFloat = 1800.0
    """Seconds that an optimiser update, a snapshot or a checkpoint may take before the run
    continues from its last checkpoint, and that a step after Ctrl-C may take before it is given
    up."""
    off_policy: Literal[0, 1] = 0
    """Number of steps that the sampling weights may lag behind: with 1, a step is played while the
    step before it is learned from."""
    keep_days: NonNegativeInt = 0
    """Number of days that the service keeps checkpoints; 0 for as long as it keeps any."""
    most_usd: float | None = None
    """US dollars at which the run ends, by the table of prices; no cap if null. The run ends after
    the step that reaches it, with a checkpoint."""
    most_tokens: int | None = None
    """Number of tokens, of prompts, answers and updates, at which the run ends; no cap if null."""


class CreditConfig(Settings):
    """Settings of how returns become advantages and weights; see docs/credit.md."""

    estimator: str = "trloo"
    """Advantage estimator: trloo, turn_group, kevin, rloo, dr_grpo or grpo."""
    normaliser: Normaliser = "token"
    """Rule by which an answer's weight is spread over its tokens: token, sequence or constant."""
    constant: int | None = None
    """Number of tokens by which credit.normaliser=constant divides; sampling.max_new_tokens if
    null."""


class OptimiserConfig(Settings):
    """Settings of the optimiser: steps, learning rate, loss and clipping."""

    steps: PositiveInt = 100
    """Number of training steps: each plays episodes, then learns from them."""
    learning_rate: PositiveFloat = 1e-5
    """Learning rate after the warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Schedule of the learning rate after the warm-up."""
    warmup_steps: NonNegativeInt = 0
    """Number of steps over which the learning rate rises from 0."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of the optimiser."""
    max_grad_norm: PositiveFloat = 1.0
    """Largest norm of the gradient; longer ones are scaled down to it (Kevin-32B: 0.05)."""
    updates_per_step: PositiveInt = 1
    """Number of optimiser updates among which a step's samples are divided."""
    micro_batch: PositiveInt = 8
    """Number of samples that a device takes in one pass; the gradients of an update's passes are
    added up."""
    loss: str = "auto"
    """Name of the loss in the backend, such as TRL's cispo; auto is the clipped ratio of PPO, with
    the weights of credit.normaliser."""
    importance: Literal["token", "sequence"] = "token"
    """Level of the importance ratios: token, or sequence for whole answers (GSPO)."""
    clip_low: Share = 0.2
    """Lower clipping distance: how far a ratio may fall below 1."""
    clip_high: NonNegativeFloat = 0.28
    """Upper clipping distance: how far a ratio may rise above 1."""
    kl_beta: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the model that the run started with."""


class JudgeConfig(Settings):
    """Settings of the judge of the kernels."""

    url: str = ""
    """Address of a verdict service that judges in place of this machine, such as
    http://127.0.0.1:8765; its key comes from the environment variable KERNELGYM_API_KEY. The
    server's workers, standby and memory are its own settings; judge.device is what it judges on."""
    device: str = "cpu"
    """Device that kernels run on: cpu, cuda or cuda:N."""
    workers: PositiveInt = 2
    """Number of worker processes."""
    standby: PositiveInt = 1
    """Number of processes that each worker makes ready while the model samples. On a GPU, where a
    context takes half a gigabyte and is made one after the other, 3 let a step's kernels be judged
    sooner; on a CPU there is nothing to gain."""
    timing: bool = False
    """Whether to time correct kernels during training; evaluation.timing is a setting of its
    own."""
    stop_at_first_failure: bool | None = None
    """Whether a verdict ends at the first call that fails; if null, it does where no reward preset
    pays for the share of calls that agree."""
    memory_bytes: PositiveInt | None = None
    """Memory budget: largest number of bytes that judging one kernel may take. Problems that need
    more are left out. If null, half of the device's memory, or of the control group's limit if that
    is less, as found when the run starts; a resumed run keeps it."""
    cache: bool = False
    """Whether to use verdicts of earlier runs on this machine, too. If false, a run is independent:
    its inputs follow from its own secret, and a verdict that was wrong by chance, or a time taken
    on a busy machine, does not reach the next run, which would make seeds and control arms depend
    on each other. Within a run no kernel is judged twice either way, resumed or not: see its
    verdicts.jsonl. If true, many short runs on the same kernels cost less."""


class LoggingConfig(Settings):
    """Settings of what is logged of a run, beside its metrics."""

    tensorboard: bool = True
    """Whether to write TensorBoard files."""
    histograms_every: NonNegativeInt = 5
    """Number of steps between histograms; 0 for none."""
    trajectories: bool = True
    """Whether to write every episode to trajectories.jsonl."""
    tokens: bool = False
    """Whether to write token ids and log-probabilities to a file beside trajectories.jsonl."""
    live: bool = True
    """Whether to show a table that follows the run, on a terminal."""
    wandb_project: str = ""
    """Name of the Weights & Biases project; none if empty."""


class EvaluationConfig(Settings):
    """Settings of the evaluation on problems that are not trained on."""

    every: NonNegativeInt = 10
    """Number of steps between evaluations; 0 for none during training."""
    suite: str = ""
    """Suite or folder of the problems; env.suite if empty."""
    levels: Several[int] = ()
    """Levels of the problems; env.levels if empty."""
    problems: str = ""
    """Ids, numbers or a range of the problems; all of the split if empty."""
    split: str = ""
    """Split, such as test (KernelBench) or heldout (Synthetic)."""
    sizes: str = ""
    """Sizes of KernelBench's problems; if empty, those of env for its suite, full for another."""
    limit: NonNegativeInt = 0
    """Largest number of problems of an evaluation, the same ones each time; 0 for all."""
    samples: PositiveInt = 4
    """Number of sampled episodes of each problem."""
    pass_at: Several[int] = (1, 4)
    """Values of k for pass@k; none above samples."""
    temperature: NonNegativeFloat = 1.0
    """Sampling temperature."""
    greedy: bool = True
    """Whether to play one greedy episode of each problem, too."""
    max_turns: PositiveInt | None = None
    """Largest number of answers of an episode; env.max_turns if null."""
    timing: bool = False
    """Whether to time correct kernels, for fast_p."""
    without_retrieval: bool = False
    """Whether to play the same episodes without retrieved entries, too; needs retrieval.index."""
