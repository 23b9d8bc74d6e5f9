"""The trusted side's reference: the problem's own model, its inputs and its expected outputs.

Contract: it lives in the worker process only. A problem's source is trusted code; if that code
fails, the judge has failed (`JudgeError`), never the kernel.

The model is built on the CPU under the init seed, as a candidate builds its own, and then moved
to the device, so that weights are the same on every device. Inputs under secret seeds are drawn
on the device itself. Inputs under public seeds are those that KernelBench draws on the CPU and
moves to the device; `kernelbench_bits.draw` makes the same bits in less time where it can.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.compare.compare import RowBlocks
from kernelgym.judge.inputs.kernelbench_bits.draw import draw_as_on_cpu
from kernelgym.judge.inputs.kinds import ENDS, GIVEN, InputSampling, is_salted, plan
from kernelgym.judge.inputs.seeds import Seeds, seed_all
from kernelgym.judge.out_of_memory import lacked_memory, our_failure
from kernelgym.judge.problem_code import names_of
from kernelgym.judge.reference.examine import NOTHING_KNOWN, InputConditions, bears, examine
from kernelgym.judge.reference.fixed_state import partly, put_state, renewed_together, vary
from kernelgym.judge.reference.known_calls import PublicCalls
from kernelgym.judge.reference.runner import (
    STEADY_BYTES,
    ExpectedOutput,
    InputsChanged,
    ReferenceRunner,
    place,
)
from kernelgym.judge.reference.starting import (
    Construction,
    StartAnswers,
    StartingKernelFailed,
    StartingModel,
)
from kernelgym.judge.tensors import DTYPES, bytes_of, lowest, precisions_of, same_bytes, tensors_of
from kernelgym.pretrained import models_of
from kernelgym.rulesets import Ruleset
from kernelgym.starting_kernel import starting_kernel
from kernelgym.types import Finding, Problem, Severity

_CPU = torch.device("cpu")
_KEPT_CONDITIONS = 4096
_LARGE_STATE_BYTES = 4 << 20  # to renew an identity of 64 MiB takes a CPU a second
_OTHER_SEED = 31337  # no verdict's: the examination must not depend on the secret
_known: dict[tuple[str, str, str], InputConditions] = {}


class Reference:
    """One problem's model, built under one seed, on one device.

    Args:
        problem: The problem.
        ruleset: Decides what precision tensors are cast to, if they are, the use of TF32, and
            whether an fp64 twin is made.
        seeds: Randomness of this verdict.
        device: Where the reference runs, such as ``cpu`` or ``cuda:0``.
        shares_device: Whether other workers use the device's memory, too. A run that lacks memory
            may then fit another time, so this says nothing about the problem, and is raised.
        answers: Has the problem's starting kernel answer, if the problem has one.

    Raises:
        JudgeError: If the problem's own code fails; `DeviceFull` if it runs out of memory.
        StartingKernelFailed: If a starting kernel says what is right, and fails or cannot be run.
    """

    def __init__(
        self,
        problem: Problem,
        ruleset: Ruleset,
        seeds: Seeds,
        device: str = "cpu",
        shares_device: bool = False,
        answers: StartAnswers | None = None,
    ) -> None:
        self.problem = problem
        """The problem that this is the reference of."""
        self.start = starting_kernel(problem)
        """Kernel whose outputs are right; None if the problem's own model says what is right."""
        self._answers = answers
        self.seeds = seeds
        """Randomness of the verdict that this reference is made for."""
        self._ruleset = ruleset
        self.device = torch.device(device)
        self.dtype = DTYPES.get(ruleset.precision)
        """Type that floating-point tensors are cast to; None if they keep the problem's types."""
        self.plan: tuple[str, ...] = (GIVEN,) * seeds.calls(ruleset)
        """The kind of inputs for each judged call."""
        self.state: dict[str, torch.Tensor] = {}
        """Values, by name, that at present replace state which is not drawn freely; on the CPU."""
        self._outdated: dict[str, torch.Tensor] = {}  # what `state` held before
        self._renewals = 0
        self._constructed: dict[str, torch.Tensor] = {}  # what `state` has replaced
        self._conditions = NOTHING_KNOWN
        self._needs_cpu = False  # whether the problem's code can draw inputs on the CPU only
        self._draws_inputs_on_device = self.device.type != "cpu" and ruleset.secret_seed
        if self.device.type == "cuda":
            allow_tf32(ruleset.tf32)
        with _our_fault("define its model"), torch.no_grad():
            self._names = names_of(problem.source, problem.id)
            self._get_inputs: Callable[[], Any] = self._names["get_inputs"]
            seed_all(seeds.init())
            # Constructor arguments stay on the CPU: both sides construct their models there.
            self.init_args = self._arguments()
            model = self._build(seeds.init())
            self._precisions = precisions_of(model.state_dict())
            self._shares_device = shares_device
            known = _known.get(self._key, NOTHING_KNOWN)
            twin, raise_on_oom = ruleset.tolerance == "fp64", shares_device and known.fits
            self._runner = ReferenceRunner(model, self.device, twin, raise_on_oom)
        self.stateful = self._runner.stateful
        """Whether outputs may depend on earlier calls; both sides then make the same calls."""

    @property
    def model(self) -> torch.nn.Module:
        """The model, on the device."""
        model: torch.nn.Module = self._runner.model
        return model

    @property
    def rules(self) -> Ruleset:
        """The rules at the problem's lowest precision, which outputs are compared by.

        Known once inputs have been drawn.
        """
        return self._ruleset.at(lowest(self._precisions))

    @property
    def draws(self) -> bool:
        """Whether a forward call so far consumed random numbers."""
        return self._runner.draws

    @property
    def flaw(self) -> Finding | None:
        """Reason, once prepared, why verdicts on the problem would be meaningless; None if none."""
        return self._conditions.flaw

    def prepare(self) -> None:
        """Replace state that is not drawn and plan judged calls, as the problem allows.

        Raises:
            JudgeError: If the problem's own code fails.
        """
        rules = self._ruleset
        as_drawn = not rules.distributions and not rules.perturb_state
        if rules.tolerance != "fp64" and as_drawn and self.start is None:
            return
        with _our_fault("run"):
            self._conditions = self._known_conditions()
        self._runner.raise_on_oom = self._shares_device and self._conditions.fits
        calls, usable = len(self.plan), self._conditions.usable
        self.plan = plan(
            self.seeds.derive("plan"),
            calls,
            rules,
            usable,
            expensive_calls=self.device.type == "cpu",
        )
        self._runner.copies_inputs = self._conditions.mutates
        if varied := self._conditions.varied:
            held = self.model.state_dict()
            self._constructed = {name: held[name].clone() for name in varied}
            self.begin_state()

    def begin_state(self) -> None:
        """Replace state that is not drawn freely by the values of a verdict's first calls."""
        self._renewals, self._outdated = 0, self._constructed
        self._put_state(self._varied("state"))

    def renew_state(self) -> None:
        """Replace a few values of some tensors of that state once more.

        A kernel that keeps what it made of earlier values is wrong from then on. The caller gives
        the candidate the values of `state`.
        """
        self._renewals, self._outdated = self._renewals + 1, self.state
        new, derive = self._varied("state", self._renewals), self.seeds.derive
        names = renewed_together(self.state, self._renewals, derive("state-names"))
        self._put_state(partly(self.state, new, derive("state-share", self._renewals), names))

    def undo_renewal(self) -> None:
        """Replace the state by what it was before it was last renewed."""
        self._outdated, before = self.state, self._outdated
        self._put_state(before)

    def is_renewed_at(self, index: int) -> bool:
        """Return whether the state is renewed before a judged call.

        Renewal begins at a call in the first half, chosen in secret, and is repeated before each
        later one, or one more if the state is large. A kernel that looks at a few elements of its
        parameters may notice a single change by luck, but hardly every one: with one change, a
        kernel that looked at the first of 256 elements passed in 2 % of verdicts.
        """
        if not self.state:
            return False
        # Not before the first call: a kernel may keep what it made there.
        calls = len(self.plan)
        first = 1 + self.seeds.derive("renewed") % max(1, (calls - 1) // 2)
        is_large = sum(value.nbytes for value in self.state.values()) > _LARGE_STATE_BYTES
        last = first + 1 if is_large else max(1, calls - 1)
        return first <= index <= last

    def _varied(self, *name: Any) -> dict[str, torch.Tensor]:
        conditions = self._conditions
        smallest, seed = conditions.smallest_variance, self.seeds.derive(*name)
        return vary(self._constructed, seed, smallest, conditions.varied)

    def _put_state(self, values: dict[str, torch.Tensor]) -> None:
        self.state = values
        self._runner.put_state(values)

    @property
    def _key(self) -> tuple[str, str, str]:
        return (self.problem.digest, self._ruleset.label, str(self.device))

    def _known_conditions(self) -> InputConditions:
        key = self._key
        if key not in _known:
            if len(_known) >= _KEPT_CONDITIONS:
                del _known[next(iter(_known))]
            _known[key] = self.examine()
        return _known[key]

    def examine(self) -> InputConditions:
        """Return which kinds of inputs and changes of state suit the problem.

        Runs separate models, so that this one keeps its state.
        """
        build, rules = (self._build, self._construct_anew), self._ruleset
        loads = bool(models_of(self.problem))
        return examine(*build, self._draw_kind, rules, self.device, self._shares_device, loads)

    def inputs(self, seed: int, kind: str = GIVEN) -> list[Any]:
        """Return one set of inputs, with floating-point tensors in their precision."""
        with _our_fault("draw its inputs"):
            drawn = self._draw_kind(seed, kind)[0]
        self._precisions |= precisions_of(drawn)
        return drawn

    @property
    def usable_kinds(self) -> tuple[str, ...]:
        """Kinds of inputs that suit the problem, beside its own."""
        return tuple(self._conditions.usable)

    @property
    def telltales(self) -> tuple[str, ...]:
        """Kinds of inputs that check timed calls, beside the problem's own.

        A kernel that takes a short cut once it is timed, one that is right on the problem's own
        inputs alone, is wrong on these kinds. They are the kinds that differ from the problem's own
        inputs in a few elements, since a call on them takes as long; if none of
        those suits the problem, all kinds that do. Other integers alone tell less.
        """
        usable = self._conditions.usable
        return tuple(kind for kind in usable if is_salted(kind) and kind != ENDS) or usable

    def inputs_for_timing(self, seed: int, kind: str = GIVEN) -> list[Any]:
        """Return one set of inputs, drawn on the device where possible.

        This is quicker than drawing on the CPU, as judged inputs under public seeds are drawn.
        """
        judged_there = self._draws_inputs_on_device
        self._draws_inputs_on_device = self.device.type != "cpu" and not self._needs_cpu
        try:
            return self.inputs(seed, kind)
        finally:
            self._draws_inputs_on_device = judged_there and not self._needs_cpu

    def expect(self, inputs: list[Any], forward_seed: int, kind: str = GIVEN) -> ExpectedOutput:
        """Run the reference and its fp64 twin on `inputs`, which stay unchanged.

        Args:
            inputs: The inputs.
            forward_seed: Seed set before each run.
            kind: The kind of these inputs.
        """
        with _our_fault("run"):
            found = self._runner.expect(inputs, forward_seed)
        known, precision = self._conditions.calibration(kind, self.rules), self.rules.precision
        sensitivity = None
        whole = found.precise is not None and not isinstance(found.precise, RowBlocks)
        if whole and bytes_of(inputs) <= STEADY_BYTES:
            ask = self._runner.sensitivity
            sensitivity = cache(partial(ask, inputs, found.precise, forward_seed, precision))
        return dataclasses.replace(
            found, kind=kind, calibration=known, precision=precision, sensitivity=sensitivity
        )

    def judged_call(
        self, seed: int, forward_seed: int, kind: str, public: PublicCalls | None
    ) -> tuple[list[Any], ExpectedOutput]:
        """Return a judged call's inputs and expected output.

        Callers must not change them.

        Args:
            seed: Seed of the inputs.
            forward_seed: Seed set before the call.
            kind: The kind of inputs to draw.
            public: Calls kept from earlier kernels under public seeds; None to keep none.
        """
        key = (self.problem.digest, seed, forward_seed, kind)
        # A kept call must not stand for one that depends on earlier calls or on random numbers.
        alike = not (self.seeds.secret or self.stateful or self.draws)
        if public is not None and alike and (found := public.find(key)) is not None:
            return found
        inputs = self.inputs(seed, kind)
        try:
            expected = self.expect(inputs, forward_seed, kind)
        except InputsChanged:
            inputs = self.inputs(seed, kind)
            expected = self.expect(inputs, forward_seed, kind)
        if public is not None and alike and not (self.draws or expected.mutates_inputs):
            public.keep(key, inputs, expected)
        return inputs, expected

    def bears(self, expected: ExpectedOutput) -> bool:
        """Return True if the reference was well conditioned in this call."""
        return bears(expected, self.rules)

    def kind_of(self, index: int) -> str:
        """Return the kind of inputs that a call is made on.

        Calls past the planned ones look for evidence, on a kind on which there is work to do.
        """
        return self.plan[index] if index < len(self.plan) else self._conditions.telling

    def needs(self, names: list[str], seed: int) -> bool:
        """Return True if any of these entries of `state` influences the output.

        A model in training mode, for example, does not read its running statistics.
        """
        try:
            runners = [
                ReferenceRunner(copy.deepcopy(self.model), self.device, twin=False)
                for _ in range(2)
            ]
        except Exception as error:
            if lacked_memory(error):
                raise our_failure(f"the reference could not be copied: {error!r}") from error
            return True  # some modules cannot be copied; their state is assumed to matter
        for runner in runners:
            runner.copies_inputs = self._conditions.mutates
        put_state(runners[1].model, vary({name: self.state[name] for name in names}, seed))
        inputs = self.inputs(seed)
        with _our_fault("run"):
            outputs = [tensors_of(runner.expect(inputs, seed).output) for runner in runners]
        return not all(same_bytes(a, b) for a, b in zip(*outputs, strict=True))

    def with_outdated_state(self, inputs: list[Any], forward_seed: int) -> list[ExpectedOutput]:
        """Return the model's outputs with the constructed state, and with the previous state.

        Empty if the model cannot be copied or run again.
        """
        found = (
            self._with_state(values, inputs, forward_seed)
            for values in (self._constructed, self._outdated)
        )
        return [each for each in found if each is not None]

    def _with_state(
        self, values: dict[str, torch.Tensor], inputs: list[Any], forward_seed: int
    ) -> ExpectedOutput | None:
        try:
            model = copy.deepcopy(self.model)
            put_state(model, values)
            runner = ReferenceRunner(model, self.device, self._ruleset.tolerance == "fp64")
            runner.copies_inputs = True
            found = runner.expect(inputs, forward_seed)
        except Exception:  # for a message only: the verdict stands without it
            return None
        known = self._conditions.calibration(GIVEN, self.rules)
        return dataclasses.replace(found, calibration=known)

    def findings(self) -> tuple[Finding, ...]:
        """Return findings on how outputs were compared, for the verdict."""
        if not self._runner.too_large:
            return ()
        atol, rtol = self.rules.tolerances
        message = (
            "outputs were compared with fixed tolerances "
            f"(atol {atol:g}, rtol {rtol:g}): an fp64 run takes too much memory"
        )
        return (Finding("fixed_tolerance", message, Severity.SOFT),)

    def _arguments(self) -> list[Any]:
        return [self._cast(value, _CPU) for value in self._names["get_init_inputs"]()]

    def _build(self, seed: int) -> torch.nn.Module:
        with torch.no_grad():
            seed_all(seed)
            model = self._names["Model"](*self.init_args)
            if self.start is not None:
                if self._answers is None:
                    raise StartingKernelFailed(
                        "the right outputs are a starting kernel's, which kernelgym check runs and "
                        "this command does not"
                    )
                built = Construction(self.init_args, seed, self.dtype)
                return StartingModel(model, self.start, built, self._answers)
            placed: torch.nn.Module = place(model, self.device, self.dtype)
            return placed

    def _construct_anew(self) -> torch.nn.Module:
        """Return the model from other random numbers, its arguments included, on the CPU."""
        with torch.no_grad():
            seed_all(_OTHER_SEED)
            model = self._names["Model"](*self._arguments())
            placed: torch.nn.Module = place(model, _CPU, self.dtype)
            return placed

    def _draw_kind(self, seed: int, kind: str) -> tuple[list[Any], bool]:
        """Return inputs of a kind, and whether the kind changed them."""
        with torch.no_grad():
            if kind == GIVEN:
                return [self._cast(value, self.device) for value in self._draw(seed)], False
            sampling = InputSampling(kind)
            with sampling:
                drawn = self._draw(seed)
            return [self._cast(value, self.device) for value in drawn], sampling.replaced > 0

    def _draw(self, seed: int) -> Any:
        if self._draws_inputs_on_device:
            seed_all(seed, self.device)
            try:
                with self.device:
                    return self._get_inputs()
            except Exception as error:
                if lacked_memory(error):
                    raise
                seed_all(seed)
                drawn = self._get_inputs()
                self._draws_inputs_on_device = False
                self._needs_cpu = True  # the problem's code works on the CPU alone
                return drawn
        if not self._ruleset.secret_seed:
            return draw_as_on_cpu(self._get_inputs, seed, self.device)
        seed_all(seed)
        return self._get_inputs()

    def _cast(self, value: Any, device: torch.device) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if any(
            step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True)
        ):
            # Elements of an expanded tensor share memory and cannot be written one by one.
            value = value.contiguous()
        cast = self.dtype if self.dtype is not None and value.is_floating_point() else value.dtype
        return value.detach().to(device, cast)


def allow_tf32(policy: str) -> None:
    """Set whether this process's fp32 work on CUDA may use TF32.

    Args:
        policy: ``off``, or ``torch`` for torch's defaults: in convolutions only.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = policy == "torch"


class _our_fault:
    """Turns whatever the problem's own code raises into a `JudgeError`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, JudgeError):
            raise our_failure(
                f"the reference could not {self._doing}: {type(error).__name__}: {error}"
            ) from error
