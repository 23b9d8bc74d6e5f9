"""Has one candidate load its module and construct its model.

Contract: the worker sends the candidate what the reference was constructed from: arguments, seed
and data type. The reference itself, and its weights that are not constant, stay with the worker.

Not covered:
- calls of the model: `kernelgym.judge.session.session`;
- what the candidate does with a request: `kernelgym.judge.untrusted.candidate`.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch

from kernelgym.judge.memory.arena import new_arena
from kernelgym.judge.memory.slots import encode_all, fill
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.reference.starting import Construction
from kernelgym.judge.session.channel import Channel, Rejected
from kernelgym.judge.session.compiled_cache import as_file, relocate
from kernelgym.judge.tensors import bytes_of, tensors_of
from kernelgym.rulesets import Ruleset
from kernelgym.types import Status

_CPU = torch.device("cpu")


class CandidateModel:
    """Has one candidate load its module and construct its model.

    Args:
        channel: The channel to the candidate.
        ruleset: The rules.
    """

    def __init__(self, channel: Channel, ruleset: Ruleset) -> None:
        self._channel, self._ruleset = channel, ruleset
        self._entry = ""
        self._was_imported = False

    @property
    def loaded(self) -> bool:
        """Whether the module was imported and all its extensions compiled."""
        return self._was_imported and not self._channel.build_failed

    def load(
        self,
        source: str,
        entry: str,
        compiled: bytes = b"",
        compiles: bool = False,
        target: str = "",
    ) -> None:
        """Send the source, without waiting; `await_load` waits for the answer.

        Args:
            source: The module's text.
            entry: Name of the model's class.
            compiled: Result of `kernelgym.judge.session.compiled_cache.pack` from an earlier run,
                if `compiles`.
            compiles: Whether torch compiles the model. Only for a reference, in a process that may
                start programs.
            target: GPU that launches are compiled for and not made on, such as ``cuda:90a``, in a
                language with a module of its own beside the kernel; empty to make them.
        """
        self._entry = entry
        fds: tuple[int, ...] = ()
        if compiled:
            fds = (as_file(relocate(compiled, str(self._channel.scratch))),)
        try:
            tf32 = self._ruleset.tf32 == "torch"
            request = {"op": "load", "source": source, "entry": entry, "tf32": tf32}
            request["as_gpu"] = self._ruleset.interpreter == "gpu"
            request["cuda_on_cpu"] = self._ruleset.cuda_on_cpu
            request["target"] = target
            request["records"] = bool(self._ruleset.front_end)
            self._channel.post({**request, "compile": compiles}, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def await_load(self) -> None:
        """Wait until the module is imported and its extensions are built."""
        self._channel.answer("load")
        self._was_imported = True

    def compilation(self, save: bool = False) -> tuple[int, int]:
        """Return what the process of a compiled reference has compiled.

        Args:
            save: Whether to leave the compiled files in its scratch folder.

        Returns:
            The number of graphs that it compiled because its caches lacked them, and the number of
            Python frames that torch's compiler has processed.
        """
        self._channel.post({"op": "compilation", "save": save})
        answer = self._channel.answer("compilation")
        return int(answer["misses"]), int(answer["frames"])

    def construct(self, reference: Reference) -> None:
        """Build the kernel's model as the reference's was built."""
        seed = reference.seeds.init()
        self.build(Construction(reference.init_args, seed, reference.dtype))
        if reference.state:
            self._check_names(reference, self.put_state(reference))

    def build(self, built: Construction) -> None:
        """Build the kernel's model from arguments, a seed and a data type."""
        tensors = tensors_of(built.init_args)
        size = sum(t.numel() * t.element_size() for t in tensors)
        arena = new_arena(len(tensors), size, _CPU)  # models are built on the CPU, then moved
        with contextlib.closing(arena):
            self._channel.share(arena)
            arguments = encode_all(built.init_args, lambda t: fill(arena, t))
            self._channel.post(
                {
                    "op": "construct",
                    "args": arguments,
                    "seed": built.seed,
                    "entry": self._entry,
                    "dtype": str(built.dtype or "").removeprefix("torch."),
                }
            )
            self._channel.answer("construct")

    def put_state(self, reference: Reference, later: bool = False) -> Any:
        """Copy the reference's values into weights of the kernel that are not drawn freely.

        Args:
            reference: The reference.
            later: Whether they take effect before the next call with late inputs, in the middle of
                a window.

        Returns:
            The names that the kernel lacks, as its process claims.
        """
        values = reference.state
        arena = new_arena(len(values), bytes_of(list(values.values())), _CPU)
        with contextlib.closing(arena):
            regions = [[name, fill(arena, v).to_json()] for name, v in values.items()]
            fields, fds = arena.handle()
            self._channel.post({"op": "state", "values": regions, "later": later, **fields}, fds)
            return self._channel.answer("construct").get("missing")

    def _check_names(self, reference: Reference, answer: Any) -> None:
        values = reference.state
        claimed = answer if isinstance(answer, list) else list(values)
        missing = [name for name in values if name in claimed]
        seed = reference.seeds.derive("influence")
        if missing and reference.needs(missing, seed):
            name = next((each for each in missing if reference.needs([each], seed)), missing[0])
            shape = list(values[name].shape)
            raise Rejected(
                Status.RUNTIME_ERROR,
                f"{self._ruleset.name} replaces parameters and buffers that are not drawn at "
                "random, or follow from others, after construction, and "
                f"{self._entry} has no parameter {name!r} of shape {shape}: keep the reference's "
                "names and shapes, so that the judge can replace values by name",
            )
