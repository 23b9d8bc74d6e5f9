"""Settings of ``kernelgym-train --backend mcgs``: flat keys.

Contract: `read_search_settings` returns settings that fit together, or raises a `UsageError` that
names the key. `spelt_as_settings` knows the options of the script that the search replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from kernelgym import UnknownName, UsageError
from kernelgym.devices import check_device
from kernelgym.languages import LANGUAGES
from kernelgym.reading import options
from kernelgym_train.config.settings import Settings, Several, read_settings
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.moves.table import known_moves

EFFORTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"quick": (20, 10), "standard": (60, 30), "thorough": (200, 60)}
)
"""(budget_builds, patience) by effort."""
_OF_A_WRITER = ("free_moves", "max_usd", "price")


class SearchSettings(Settings):
    """Every key of the command."""

    input: str = ""
    """A problem with its start kernel: the file of a kernel spec (.json), a folder of such files,
    example:matmul, example:softmax or example:layernorm."""
    problem: str = ""
    """Id of a problem, such as Synthetic/L1/2, or its file; needs kernel."""
    kernel: str = ""
    """File of the kernel to start from; needs problem."""
    language: str = ""
    """Language of that kernel: cpp, triton or cuda; read from its text if not given."""
    device: str = ""
    """Where kernels run: cpu, or a GPU such as cuda:0. By the kernel's language if not given: the
    cpu for C++, the first GPU for Triton and CUDA."""
    gpus: str = ""
    """Numbers of the GPUs to judge on, such as 0 or 0,1,2; all of one kind."""
    evaluator: str = ""
    """Address of a verdict service that judges, such as http://127.0.0.1:8765, in place of this
    machine; its key comes from the environment variable KERNELGYM_API_KEY. Or ray, for this
    machine's Ray cluster."""
    outdir: str = "out"
    """Folder of results; each kernel has its own in outdir/kernels."""
    effort: Literal["quick", "standard", "thorough"] = "standard"
    """How much to try: sets budget_builds (20, 60 or 200) and patience (10, 30 or 60)."""
    budget_builds: int | None = None
    """Kernels that the search sends to the judge; the comparisons that confirm the best come on
    top. By effort if not given."""
    seconds: float = 0.0
    """Wall time that the whole search may take; 0 for no limit."""
    min_pred_gain: float = 0.02
    """Smallest expected gain in speed, as a share, for which a proposal is judged, by what its
    moves have gained so far; also the smallest improvement of the best that counts as a gain."""
    patience: int | None = None
    """Evaluations without a gain after which the search ends; 0 for no such limit. By effort if
    not given."""
    floor_share: float = 0.95
    """Share of the device's bandwidth at which the search ends, where the judge measures it."""
    algo: str = "tpe"
    """Algorithm that chooses what to try next: tpe, best_first, mcgs or random."""
    moves: Several[str] = ()
    """Moves that rules make and a model is asked for, such as [hoist, unroll]; all if not given."""
    llm_model: str = ""
    """Name of a model at an OpenAI-compatible endpoint, which writes kernels in addition to the
    rules."""
    no_llm: bool = False
    """Whether to search by rules alone, whatever model is named."""
    proposer: str = ""
    """Writer of kernels in place of llm_model: command:CMD, replay:FOLDER of another search, or a
    policy of `kernelgym eval`, such as hf:MODEL+ADAPTER, or tinker:PATH with llm_model=BASE."""
    free_moves: bool = False
    """Whether a model may make any change, not only the moves that the search knows."""
    max_usd: float | None = None
    """Limit on the model's cost in US dollars, over the whole search; needs price."""
    price: str = ""
    """Price of the model: IN,OUT[,CACHED] in USD per million tokens, or a YAML file of prices."""
    llm_tokens: int | None = None
    """Limit on the model's tokens, prompts and answers, over the whole search."""
    llm_endpoint: str = ""
    """Address of the model's API; $OPENAI_BASE_URL, or OpenAI's, if not given."""
    llm_api: Literal["chat", "responses"] = "chat"
    """API of the endpoint."""
    llm_api_key_env: str | None = None
    """Environment variable that holds the key; OPENAI_API_KEY if not given."""
    llm_max_tokens: int | None = None
    """Tokens of one answer, thinking included."""
    llm_temperature: float | None = None
    """Temperature of the sampling; the server's own if not given."""
    llm_reasoning_effort: str | None = None
    """Reasoning effort of a reasoning model, such as low or high."""
    llm_timeout_s: float = 600.0
    """Time limit of one request or one command, in seconds."""
    llm_rpm: float | None = None
    """Requests a minute, retries included; no limit if not given."""
    llm_tpm: float | None = None
    """Tokens a minute; no limit if not given."""
    llm_repairs: Annotated[int, Field(ge=0)] = 1
    """Number of times that a model is shown what was wrong with its kernel, and repairs it."""
    llm_retrieval: str = ""
    """Index of solved problems that prompts show to the model, such as synthetic; none if not
    given."""
    ncu_every: NonNegativeInt = 0
    """Smallest number of evaluations between two profiles of the best kernel by ncu, whose counters
    say what limits it; 0 for no profiles."""
    require_quiet: bool = False
    """Whether to refuse a host on which verdicts of one kernel differ by more than 10 %."""
    seed: int = 0
    """Seed of the search's random number generator. The judge draws its inputs in secret."""
    workers: PositiveInt = 2
    """Kernels that are judged at the same time. One is timed while others are built."""
    deterministic: bool = True
    """Whether results are recorded in the order in which kernels were sent to the judge, so that
    equal verdicts give equal searches; false records each when it arrives."""
    root_noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of random numbers in the start's priors, from 0 to 1, for mcgs: guards against priors
    that are wrong."""
    approximate: bool = False
    """Whether moves that make results less accurate are allowed, such as -ffast-math."""
    tactics: str = ""
    """File with the gains of moves, which all commands share; global_tactic_graph.json in the cache
    folder ($KERNELGYM_CACHE) if not given."""
    ruleset: str = "strict"
    """Rules of the judge."""
    resume: bool = False
    """Go on with the search in outdir."""
    worker: str = ""
    """Path of a variant's control.json: repeat that evaluation only; no search begins."""

    @property
    def has_writer(self) -> bool:
        """Whether a model, a command or a recording writes kernels."""
        return not self.no_llm and bool(self.llm_model or self.proposer)

    @property
    def budget(self) -> Budget:
        """Return the limits of the search.

        Raises:
            UsageError: If one of them is not a limit.
        """
        builds, patience = EFFORTS[self.effort]
        return Budget(
            builds if self.budget_builds is None else self.budget_builds,
            self.seconds,
            self.min_pred_gain,
            patience if self.patience is None else self.patience,
            self.floor_share,
        )

    def devices(self, language: str) -> tuple[str, ...]:
        """Return the names of the devices that kernels of a language are judged on.

        Args:
            language: Name of the language.

        Raises:
            UsageError: If a name is not a device.
        """
        if self.gpus:
            numbers = [number.strip() for number in self.gpus.split(",")]
            if not all(number.isascii() and number.isdigit() for number in numbers):
                raise UsageError(
                    f"gpus={self.gpus} is not a list of GPUs; give numbers: gpus=0 or gpus=0,1"
                )
            return tuple(dict.fromkeys(f"cuda:{int(number)}" for number in numbers))
        if self.device:
            return (check_device(self.device),)
        return ("cpu",) if LANGUAGES[language].is_timed("cpu") else ("cuda:0",)


def read_search_settings(given: Sequence[str]) -> SearchSettings:
    """Return settings from texts such as ``budget_builds=20``.

    Raises:
        UnknownName: If there is no such key or algorithm.
        UsageError: If a value does not fit.
    """
    settings = read_settings(SearchSettings, {}, given)
    if settings.algo not in ALGORITHMS:
        raise UnknownName("algorithm", settings.algo, ALGORITHMS)
    if settings.gpus and settings.device:
        raise UsageError("give gpus= or device=, not both")
    if settings.evaluator and (settings.gpus or settings.ncu_every):
        raise UsageError(
            f"evaluator={settings.evaluator} judges elsewhere; leave out gpus= and ncu_every="
        )
    _ = settings.devices("cpp")  # refuses names that are none
    _check_writer(settings)
    _ = settings.budget  # refuses limits that are none
    return settings


def _check_writer(settings: SearchSettings) -> None:
    """Refuse unknown moves, and options for a writer if no writer is named."""
    known = {move for language in LANGUAGES for move in known_moves(language)}
    for move in settings.moves:
        if move not in known:
            raise UnknownName("move", move, known)
    kind = settings.proposer.partition(":")[0]
    if settings.llm_model and kind in ("command", "replay"):
        raise UsageError(
            f"llm_model={settings.llm_model} and proposer={settings.proposer} are two writers of "
            "kernels; give one"
        )
    if not settings.llm_model and not settings.proposer:
        for name in settings.model_dump(exclude_defaults=True):
            if name in _OF_A_WRITER or name.startswith("llm_"):
                raise UsageError(
                    f"{name}={getattr(settings, name)} is for a model, and none is named; give "
                    "llm_model=NAME or proposer=, or leave it out"
                )


def spelt_as_settings(texts: Iterable[str]) -> list[str]:
    """Return options such as ``--budget-builds 50 --no-llm`` as key=value.

    Texts that are no option of a search are left as they are. A switch without a value is true.
    """
    kinds = {option.path: option.type for option in options(SearchSettings)}
    left, found = list(texts), []
    while left:
        text = left.pop(0)
        name, equals, value = text.partition("=")
        key = name[2:].replace("-", "_")
        if not name.startswith("--") or key not in kinds:
            found.append(text)
            continue
        if not equals:
            follows = left[0] if left else ""
            if kinds[key] == "true or false":
                value = left.pop(0) if follows in ("true", "false") else "true"
            elif not follows or follows.startswith("--"):
                raise UsageError(f"{name} needs a value, such as {key}=VALUE")
            else:
                value = left.pop(0)
        found.append(f"{key}={value}")
    return found
