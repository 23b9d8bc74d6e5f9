"""Examines a problem: kinds of inputs that suit it, state that can vary, and soundness.

On some kind of inputs a reference may overflow, lose all its digits or give one number everywhere.
An honest kernel could then fail, or a worthless one pass, so that kind is left out. A process
examines each problem once per ruleset and device. The seeds used here do not depend on the
verdict's secret, so that a verdict can be repeated.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from kernelgym.judge.compare.compare import Calibration, RowBlocks, compare, own_errors
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.kinds import BALANCED, ENDS, GIVEN, SALTED, alone, is_alone
from kernelgym.judge.inputs.seeds import seed_all
from kernelgym.judge.out_of_memory import lacked_memory
from kernelgym.judge.reference.fixed_state import (
    edges,
    fixed_state,
    is_constant,
    put_state,
    vary,
)
from kernelgym.judge.reference.groups import MOST_SAMPLERS, groups_of, of_samplers
from kernelgym.judge.reference.operator_class import OperatorWatch
from kernelgym.judge.reference.related_state import related_state
from kernelgym.judge.reference.runner import (
    STEADY_BYTES,
    ExpectedOutput,
    InputsChanged,
    ReferenceRunner,
)
from kernelgym.judge.reference.soundness import SoundnessTest
from kernelgym.judge.reference.starting import StartingModel
from kernelgym.judge.reference.varied import most_borne
from kernelgym.judge.tensors import bytes_of, lowest, precisions_of, same_bytes, tensors_of
from kernelgym.rulesets import ErrorFactors, Ruleset
from kernelgym.types import Finding

Draw = Callable[[int, str], tuple[list[Any], bool]]
"""Draws inputs of a kind under a seed; returns them, and whether the kind changed them."""

_SEED = 2026
_FEW_ELEMENTS = 16
_MORE_DRAWS = 3
_MOST_COPIED = 0.9  # above, a verdict's other draw may hold nothing but copies


@dataclass(frozen=True, slots=True)
class InputConditions:
    """Results of examining a problem under one ruleset on one device."""

    usable: tuple[str, ...]
    """Kinds of inputs, beside the problem's own, on which the reference is well conditioned."""
    varied: Mapping[str, float]
    """Largest change of the state that may be replaced, by name, as a share of its values."""
    mutates: bool
    """Whether the reference changes its inputs."""
    factors: ErrorFactors | None
    """Allowed multiples of the reference's own error; None for those of an unknown operation."""
    own_errors: Mapping[str, tuple[float, ...]]
    """The reference's error on each output by kind, where outputs have few elements."""
    telling: str = GIVEN
    """Kind of inputs on which few elements of the outputs are copies of an input's: the problem's
    own unless most outputs are copies on it. On inputs without negative values, for example, a ReLU
    only copies."""
    smallest_variance: float = 1.0
    """Factor by which some of the running variances may be multiplied; 1 leaves them unchanged."""
    fits: bool = True
    """Whether the device has memory for fp64 runs if no other worker uses it."""
    flaw: Finding | None = None
    """Reason why every verdict on the problem would be meaningless; None if there is none."""

    def calibration(self, kind: str, ruleset: Ruleset) -> Calibration:
        """Return the calibration of the error bound for one kind of inputs."""
        factors = ruleset.factors_for("") if self.factors is None else self.factors
        return Calibration(factors, self.own_errors.get(kind, ()))


NOTHING_KNOWN = InputConditions((), MappingProxyType({}), False, None, MappingProxyType({}))


def examine(
    build: Callable[[int], Any],
    construct_anew: Callable[[], Any],
    draw: Draw,
    ruleset: Ruleset,
    device: Any,
    shares_device: bool = False,
    loads_weights: bool = False,
) -> InputConditions:
    """Run a problem's reference and return which kinds of inputs and changes of state suit it.

    Args:
        build: Makes the model under a seed, on the device.
        construct_anew: Makes the model from other random numbers, its arguments included.
        draw: Draws inputs.
        ruleset: The rules.
        device: A `torch.device`.
        shares_device: Whether other workers use the device's memory, too. Running out of memory
            then says nothing about the problem, and is raised.
        loads_weights: Whether the model loads pretrained weights. They are the problem's own, as
            if they had been drawn, so only tensors of one value are replaced.

    Raises:
        Exception: Whatever the problem raises on its own inputs.
    """
    twin = ruleset.tolerance == "fp64"
    runner = ReferenceRunner(build(_SEED), device, twin, raise_on_oom=shares_device)
    inputs, _ = draw(_SEED, GIVEN)
    try:
        own = runner.expect(inputs, _SEED)
    except InputsChanged:
        inputs, _ = draw(_SEED, GIVEN)
        own = runner.expect(inputs, _SEED)
    ruleset = ruleset.at(lowest(precisions_of([runner.model.state_dict(), inputs])))
    mutates = own.mutates_inputs
    watched = None
    if twin and not isinstance(runner.model, StartingModel):  # whose operators are its own
        watched = _watched(runner, inputs, mutates)
    operation = "" if watched is None else watched.operation
    factors = ruleset.factors_for(operation) if twin else None
    bears_state = partial(_bears_other_state, runner, inputs, own, ruleset, factors)
    varied: dict[str, float] = {}
    smallest_variance = 1.0
    if ruleset.perturb_state and not isinstance(runner.model, StartingModel):
        anew = construct_anew()
        state = fixed_state(runner.model, anew) | related_state(runner.model, anew)
        if loads_weights:
            state = {name: value for name, value in state.items() if is_constant(value)}
        varied, smallest_variance = most_borne(state, bears_state, ruleset.small_variances)
    if varied:
        own = runner.expect(inputs, _SEED)
    has_work = _copied(own.output, inputs) <= _MOST_COPIED
    del inputs
    known: dict[str, tuple[float, ...]] = {}
    usable: list[str] = []
    if own_errors(own.output, own.precise, ruleset) is not None:
        more = partial(_errors_of_few, runner, draw, ruleset)
        known[GIVEN] = more(GIVEN, own)
        groups = groups_of(ruleset, watched, _has_integers(own.output))
        for group in _one_at_a_time(groups, usable, runner, draw):
            for variant in group:
                found = _try(runner, draw, variant, ruleset, own, factors)
                if found is not None:
                    usable.append(variant)
                    known[variant] = more(variant, found)
                    break
    flaw = None
    if ruleset.require_custom_kernel or isinstance(runner.model, StartingModel):
        calibration = None if factors is None else Calibration(factors, known.get(GIVEN, ()))
        test = SoundnessTest(runner, partial(build, _SEED), draw, own, ruleset, calibration, _SEED)
        flaw = _flaw(test, usable, runner)
    return InputConditions(
        tuple(usable),
        MappingProxyType(varied),
        mutates,
        factors,
        MappingProxyType(known),
        GIVEN if has_work else _telling(runner, draw, usable),
        fits=not runner.too_large,
        smallest_variance=smallest_variance,
        flaw=flaw,
    )


def _one_at_a_time(
    groups: Sequence[tuple[str, ...]], usable: Sequence[str], runner: ReferenceRunner, draw: Draw
) -> Iterator[tuple[str, ...]]:
    """Yield groups; then, if no kind is usable, those that turn one sampler call's values alone.

    One input that bears no kind, such as an arc cosine's, must not shield the others.
    """
    yield from groups
    if not set(usable) - {ENDS}:
        yield from of_samplers(groups, _samplers(runner, draw))


def _samplers(runner: ReferenceRunner, draw: Draw) -> int:
    """Return the number of sampler calls that draw a problem's inputs, as far as it is of use."""
    for number in range(1, MOST_SAMPLERS + 1):
        try:
            if not draw(_SEED, alone(SALTED, number))[1]:
                return number - 1
        except Exception as error:  # of the problem's code, which salt does not suit
            if _is_to_be_raised(error, runner):
                raise
    return MOST_SAMPLERS


def _flaw(test: SoundnessTest, usable: list[str], runner: ReferenceRunner) -> Finding | None:
    try:
        return test.flaw(usable)
    except Exception as error:
        if _is_to_be_raised(error, runner):
            raise
        return None  # it ran before: what fails is another run, so nothing is known


def bears(expected: ExpectedOutput, ruleset: Ruleset) -> bool:
    """Return True if reference and twin agree enough to compare with."""
    return own_errors(expected.output, expected.precise, ruleset) is not None


def _watched(runner: ReferenceRunner, inputs: list[Any], mutates: bool) -> OperatorWatch | None:
    """Return facts about the problem's operations; None if it does not run while it is watched."""
    watching = OperatorWatch()
    with torch.no_grad():
        seed_all(_SEED, runner.device)
        given = copy.deepcopy(inputs) if mutates else inputs
        try:
            with watching:
                runner.model(*given)
        except Exception as error:
            if lacked_memory(error):
                raise
            return None  # some models do not run under a torch function mode
    return watching


def _bears_other_state(
    runner: ReferenceRunner,
    inputs: list[Any],
    before: ExpectedOutput,
    ruleset: Ruleset,
    factors: ErrorFactors | None,
    state: Mapping[str, torch.Tensor],
    strengths: Mapping[str, float],
    smallest_variance: float,
    with_care: bool,
) -> bool:
    """Return True if replaced state leaves the output useful.

    With care, the values farthest away must do so, too. With small variances (a factor below 1),
    and with care, the reference must also be well conditioned, if it was before. The replacement
    stays if so, and is undone if not.
    """
    kept = {name: value.clone() for name, value in state.items()}
    choices = edges(kept, _SEED, strengths) if with_care else ()
    borne = True
    try:
        for values in (*choices, vary(kept, _SEED, smallest_variance, strengths)):
            put_state(runner.model, values)
            runner.renew_twin()
            after = runner.expect(inputs, _SEED)
            borne = borne and _is_useful(after.output, before.output)
            if with_care and bears(before, ruleset):
                borne = borne and bears(after, ruleset)
            if not borne:
                break
        if borne and (smallest_variance < 1 or (with_care and bears(before, ruleset))):
            borne = bears(after, ruleset) and _is_steady(runner, inputs, after, ruleset, factors)
    except Exception as error:
        if _is_to_be_raised(error, runner):
            raise
        borne = False
    if borne:
        return True
    put_state(runner.model, kept)
    runner.renew_twin()
    return False


def _try(
    runner: ReferenceRunner,
    draw: Draw,
    variant: str,
    ruleset: Ruleset,
    own: ExpectedOutput,
    factors: ErrorFactors | None,
) -> ExpectedOutput | None:
    """Return the reference's outputs on one kind of inputs.

    None if the kind does not suit the problem.
    """
    try:
        inputs, changed = draw(_SEED, variant)
        if not changed:
            return None
        found = runner.expect(inputs, _SEED)
        if not bears(found, ruleset) or not _is_useful(found.output, own.output):
            return None
        # Small changes of powers of two add up in long products, which are exact as they are.
        if variant.startswith(BALANCED):
            return found if _is_exact(found) else None
        unmoved = []
        # What the other inputs bear, the problem's own kind tells. Large ones are not moved at all.
        if is_alone(variant) and bytes_of(inputs) <= STEADY_BYTES:
            given, _ = draw(_SEED, GIVEN)
            pairs = zip(inputs, given, strict=True)
            unmoved = [n for n, (now, usual) in enumerate(pairs) if _is_unchanged(now, usual)]
            del given, pairs
        if not _is_steady(runner, inputs, found, ruleset, factors, unmoved):
            return None
        return found
    except Exception as error:
        if _is_to_be_raised(error, runner):
            raise
        # Any other error, such as an index out of range or a check in the problem's code, means
        # that the problem was not made for such inputs: the kind is left out.
    return None


def _is_unchanged(value: Any, before: Any) -> bool:
    tensors = isinstance(value, torch.Tensor) and isinstance(before, torch.Tensor)
    return tensors and same_bytes(value, before)


def _is_to_be_raised(error: Exception, runner: ReferenceRunner) -> bool:
    """Return True if a run lacked memory that other workers may hold."""
    lacked = lacked_memory(error)
    if lacked and not runner.raise_on_oom:
        torch.cuda.empty_cache()
    return lacked and runner.raise_on_oom


def _telling(runner: ReferenceRunner, draw: Draw, usable: list[str]) -> str:
    """Return the kind of inputs of which the reference copies least.

    The worst of some draws counts. One draw does not tell: a GELU copies what lies above 5, which
    ``shifted`` inputs may do or not.
    """

    def most_copied(kind: str) -> float:
        try:
            shares = []
            for number in range(1, _MORE_DRAWS + 1):
                inputs, _ = draw(_SEED + number, kind)
                shares.append(_copied(runner.expect(inputs, _SEED).output, inputs))
            return max(shares)
        except Exception as error:
            if _is_to_be_raised(error, runner):
                raise
            return 1.0

    return min((GIVEN, *usable), key=most_copied)


def _copied(output: Any, inputs: list[Any]) -> float:
    """Return the share of the outputs' elements that are copies.

    An input has them at the same place. 1 if every output has the same bytes as some input.
    """
    given, copies, elements = tensors_of(inputs), 0, 0
    for out in tensors_of(output):
        elements += out.numel()
        copies += max((_same_elements(out, tensor) for tensor in given), default=0)
    return copies / elements if elements else 1.0


def _same_elements(out: torch.Tensor, tensor: torch.Tensor) -> int:
    if same_bytes(out, tensor):
        return int(out.numel())
    alike = all(
        getattr(out, name) == getattr(tensor, name)
        for name in ("shape", "dtype", "device", "layout")
    )
    if not alike or out.layout is not torch.strided:
        return 0
    return int((out == tensor).sum())


def _has_integers(output: Any) -> bool:
    return any(not out.is_floating_point() for out in tensors_of(output))


def _is_useful(output: Any, usual: Any) -> bool:
    """Return True if outputs are as finite and varied as usual.

    A tenth fewer finite elements are allowed where the usual outputs have infinite ones or NaN.
    """
    now, before = tensors_of(output), tensors_of(usual)
    if len(now) != len(before):
        return False
    for a, b in zip(now, before, strict=True):
        if not a.is_floating_point() or not a.numel() or not b.numel():
            continue
        usual_share = _share_finite(b)
        if _share_finite(a) < (usual_share if usual_share == 1 else usual_share - 0.1):
            return False
        if _is_constant(a) and not _is_constant(b):
            return False
    return True


def _is_exact(found: ExpectedOutput) -> bool:
    """Return True if the reference's own precision rounds nothing, as far as memory lets see."""
    if isinstance(found.precise, RowBlocks):
        return True
    precise = tensors_of(found.precise)
    return all(
        bool(torch.equal(own.to(exact.dtype), exact))
        for own, exact in zip(tensors_of(found.output), precise, strict=True)
    )


def _share_finite(tensor: torch.Tensor) -> float:
    finite = tensor.isfinite()
    return 1.0 if bool(finite.all()) else int(finite.sum()) / finite.numel()


def _is_constant(tensor: torch.Tensor) -> bool:
    finite, most = tensor.isfinite(), torch.finfo(tensor.dtype).max
    if tensor.numel() < 2 or not bool(finite.any()):
        return bool(tensor.numel() > 1)
    low = float(torch.where(finite, tensor, most).min())
    high = float(torch.where(finite, tensor, -most).max())
    return bool(high - low <= 1e-5 * max(abs(low), abs(high)))


def _is_steady(
    runner: ReferenceRunner,
    inputs: list[Any],
    found: ExpectedOutput,
    ruleset: Ruleset,
    factors: ErrorFactors | None,
    unmoved: Collection[int] = (),
) -> bool:
    """Return True if tiny input changes keep outputs within the bound.

    The changes are in the last places of all inputs but those with the numbers `unmoved`.

    An honest kernel may err as much as if it had been given such inputs.
    """
    if bytes_of(inputs) > STEADY_BYTES or isinstance(found.precise, RowBlocks):
        return True  # a second set of such large inputs would take too much time and memory
    output = runner.run_nearby(inputs, _SEED, ruleset.precision, unmoved=unmoved)
    outputs = [
        a.to(b.dtype) for a, b in zip(tensors_of(output), tensors_of(found.output), strict=True)
    ]
    # All elements change by more than an honest kernel's roundings: not so bounded here.
    element = (factors or ruleset.factors_for("")).element
    known = Calibration(ErrorFactors(element, math.inf, math.inf))
    claimed = describe_shape_of(found.output)
    return compare(claimed, outputs, found.output, found.precise, ruleset, known).passed


def _errors_of_few(
    runner: ReferenceRunner, draw: Draw, ruleset: Ruleset, kind: str, first: ExpectedOutput
) -> tuple[float, ...]:
    """Return the largest own error over some calls, for small outputs."""
    leaves = tensors_of(first.output)
    if not any(leaf.numel() < _FEW_ELEMENTS and leaf.is_floating_point() for leaf in leaves):
        return ()
    errors = own_errors(first.output, first.precise, ruleset) or [0.0] * len(leaves)
    for number in range(1, _MORE_DRAWS + 1):
        found = runner.expect(draw(_SEED + number, kind)[0], _SEED)
        now = own_errors(found.output, found.precise, ruleset)
        if now is not None and len(now) == len(errors):
            errors = [max(a, b) for a, b in zip(errors, now, strict=True)]
    return tuple(errors)
