"""`KernelAsking`: requests kernels from a writer during a search, and records the answers.

Contract:

- a request is an event before it is made, and its answer is on the disk before it is an event, so
  that a kill loses neither; what a kill left without an answer is asked again first;
- an answer that gives no new kernel is an event as well: it is told to the writer in a repair, and
  costs no evaluation. A kernel that the search knows is refused before it is judged;
- a writer is asked no more (`AskLog.closed`) once a request does not fit below a cap, five requests
  in a row had no answer, twenty answers in a row gave no kernel to judge, or every request would be
  refused. The rules go on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelgym import UsageError
from kernelgym.benchmark.run.policies import ProviderFailure, RunStopped
from kernelgym.errors import PolicyFailure
from kernelgym.feedback import feedback
from kernelgym.languages import LANGUAGES
from kernelgym.machine import machine
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.parts import Part
from kernelgym.retrieval.prompt_part import ready_retrieval
from kernelgym.starting_kernel import standard_of
from kernelgym.tokens import fit
from kernelgym.types import Kernel, Message, Reply
from kernelgym.whole_file import write_whole
from kernelgym_train.mcgs.moves.definition import RISKS
from kernelgym_train.mcgs.moves.table import known_moves
from kernelgym_train.mcgs.session import SearchSession
from kernelgym_train.mcgs.trials import SearchTrial
from kernelgym_train.mcgs.variant import MoveStep, steps_in_words
from kernelgym_train.mcgs.writing.answers import (
    FREE_MOVE,
    AnswerRefused,
    WrittenKernel,
    is_inexact,
    read_answer,
)
from kernelgym_train.mcgs.writing.asks import PREFIX, RULES, WRITER, Ask
from kernelgym_train.mcgs.writing.choosing import better_arm, choose_ask
from kernelgym_train.mcgs.writing.policies import ANSWERS
from kernelgym_train.mcgs.writing.prompting import WriterTask, writer_messages
from kernelgym_train.mcgs.writing.writer import (
    MOST_FAILED,
    KernelWriter,
    WriterAnswer,
    WriterRequest,
    prompt_digest,
)

_MOST_BARREN = 20
_POLL_S = 0.2
_EARLIER_TOKENS = 1500
_MOST_TOLD = 160


@dataclass(frozen=True, slots=True)
class AskedKernel:
    """Request to a writer, with its answer or the error in place of an answer."""

    request: WriterRequest
    answer: WriterAnswer | BaseException
    """Answer to the request, or the error by which it has none."""
    seconds: float
    """Seconds from the request to the answer."""


class KernelAsking:
    """The requests of one search to its writer.

    Args:
        session: The search.
        writer: The writer; it stays open.
    """

    def __init__(self, session: SearchSession, writer: KernelWriter) -> None:
        self._session, self._writer = session, writer
        can, task = session.evaluator.capabilities, session.task
        parts: tuple[Part, ...] = ()
        if writer.retrieval:
            parts = (ready_retrieval(writer.retrieval, task.start.language, can.device),)
        self._observer = Observer(
            task.start.language,
            can.device,
            can.ruleset,
            examples="zero_shot",
            hardware=_hardware(can.device),
            parts=parts,
        )
        self._moves = vocabulary(task.start.language, session.approximate, session.config.moves)
        self._weights = {move: weight for move, (weight, _) in self._moves.items()}
        if writer.free_moves:
            self._weights = {FREE_MOVE: 1.0}

    def is_due(self) -> bool:
        """Return True if the next proposal comes from the writer, not from the rules."""
        state = self._session.state
        waiting = [WRITER if key in state.asks.by_key else RULES for key in state.open]
        waiting += [WRITER] * len(state.asks.open)
        return self.may_ask() and better_arm(state.asks.arms, waiting) == WRITER

    def may_ask(self) -> bool:
        """Return True if a request can be made."""
        asks = self._session.state.asks
        return not asks.closed and bool(self._weights)

    def begin(self) -> asyncio.Task[AskedKernel]:
        """Send the writer a request for one kernel, if allowed; return the task that awaits it."""
        session, asks = self._session, self._session.state.asks
        repaired = asks.to_repair(self._writer.repairs)
        if repaired is None:
            node, move = choose_ask(session.around, asks, self._weights)
            task = self._task(node, move)
        else:
            node, move = repaired.node, repaired.move
            task = self._repair(repaired)
        number = len(asks.asks)
        messages = writer_messages(self._observer, session.task.problem, task, session.task.spec)
        facts = {
            "MOVE": task.move,
            "RECIPE": task.recipes.get(task.move, ""),
            "LANGUAGE": task.parent.language,
            "FAILURE": task.failure,
        }
        request = self._writer.request(session.task.problem, number, messages, task.parent, facts)
        tokens, usd = self._writer.worst(request)
        self._write(request, None)
        session.record(
            "asked",
            {
                "ask": number,
                "node": node,
                "move": move,
                "digest": prompt_digest(messages),
                "worst_tokens": tokens,
                "worst_usd": usd,
                "repairs": None if repaired is None else repaired.number,
            },
        )
        return asyncio.create_task(self._wait(request))

    def again(self, ask: Ask) -> asyncio.Task[AskedKernel] | None:
        """Repeat a request whose answer a kill prevented; None if its prompt is lost."""
        told = self._told(ask.number)
        if told is None:
            lost = {"ask": ask.number, "outcome": "failed", "message": "the request was lost"}
            self._session.record("answered", {"answer": lost})
            return None
        messages = [Message(role, content) for role, content in told["messages"]]
        problem = self._session.task.problem
        request = self._writer.request(problem, ask.number, messages, _parent(told), told["facts"])
        self._session.record("asked", {"ask": ask.number})
        return asyncio.create_task(self._wait(request))

    def take_in(self, asked: AskedKernel) -> str | None:
        """Record a writer's answer; return the key of the state to judge, or None."""
        session, state = self._session, self._session.state
        if isinstance(asked.answer, BaseException):
            self._take_failure(asked, asked.answer)
            return None
        self._write(asked.request, asked.answer)
        generation = asked.answer.generation
        ask = state.asks.asks[asked.request.sample]
        answer = {"ask": ask.number, "seconds": asked.seconds, **self._costs(ask, asked.answer)}
        try:
            found = read_answer(
                generation.answer,
                asked.request.parent,
                cut_off=generation.finish_reason == "length",
                moves=None if self._writer.free_moves else self._weights,
                approximate=session.approximate,
            )
        except AnswerRefused as refused:
            answer |= {"outcome": "refused", "fault": refused.kind, "message": str(refused)}
            session.record("answered", {"answer": answer})
            session.say(f"      {session.seconds:6.0f} s  answer refused: {refused.kind}")
            self._close_if_barren()
            return None
        answer |= {"predicted_gain": found.predicted_gain, "summary": found.summary}
        key = self._propose(ask, found, answer)
        self._close_if_barren()
        return key

    def _propose(self, ask: Ask, found: WrittenKernel, answer: Mapping[str, Any]) -> str | None:
        """Record a written kernel as proposed, repeated or pruned; return its key if judged."""
        session, state = self._session, self._session.state
        named = found.move if found.move in self._weights else ""
        move = f"{PREFIX}{named}" if named else ask.move
        said = f"answer {ask.number}: {found.summary or found.form}"
        node = state.variants[ask.node]
        steps = (*node.applied, MoveStep(move, "text", said))
        variant = dataclasses.replace(found.variant, applied=steps)
        own = "approximate" if is_inexact(variant) else "reassociates"
        risk = max(own, state.risks[ask.node], key=RISKS.index)
        attempt, gain = state.graph.action(ask.node, move).attempts, found.predicted_gain
        key = session.propose(
            {"node": ask.node, "move": move, "attempt": attempt, "answer": answer},
            variant,
            risk,
            gain,
            {"links": [], "scores": [], "prior_source": "writer", "predicted_gain": gain},
        )
        if key is not None:
            session.around.reopen()
        return key

    def _take_failure(self, asked: AskedKernel, error: BaseException) -> None:
        """Record that a request has no answer, and whether it will be repeated."""
        session = self._session
        ask = session.state.asks.asks[asked.request.sample]
        message = " ".join(str(error).split())[:300] or type(error).__name__
        answer: dict[str, Any] = {"ask": ask.number, "outcome": "failed", "message": message}
        answer["seconds"] = asked.seconds
        if not isinstance(error, RunStopped | UsageError):
            answer |= {"tokens": ask.worst_tokens, "usd": ask.worst_usd or None}
        if isinstance(error, ProviderFailure):
            answer["usd"] = error.usd
        session.record("answered", {"answer": answer})
        if isinstance(error, asyncio.CancelledError):
            return  # the search ends
        failed = session.state.asks.in_a_row("failed")
        if not isinstance(error, PolicyFailure):
            self._close(message)
        elif failed >= MOST_FAILED:
            self._close(f"{failed} requests in a row had no answer, the last with: {message}")
        else:
            session.say(f"      {session.seconds:6.0f} s  no answer: {message[:_MOST_TOLD]}")

    def _close_if_barren(self) -> None:
        barren = self._session.state.asks.in_a_row("refused", "repeated", "pruned", "failed")
        if barren >= _MOST_BARREN:
            self._close(f"{barren} answers in a row gave no kernel to judge")

    def _close(self, reason: str) -> None:
        session = self._session
        if not session.state.asks.closed:
            session.record("writer_closed", {"reason": reason})
            session.say(f"warning: no more kernels are asked for: {reason}")

    async def _wait(self, request: WriterRequest) -> AskedKernel:
        """Wait for a writer's answer until the search ends."""
        session = self._session
        asks, began = session.state.asks.asks, session.config.clock()
        digest = asks[request.sample].digest
        repeat = sum(ask.digest == digest for ask in asks[: request.sample])
        future = asyncio.wrap_future(self._writer.ask(request, repeat))
        answer: WriterAnswer | BaseException
        try:
            while not future.done():
                await asyncio.wait([future], timeout=_POLL_S)
                if session.is_stopped or session.seconds_left < session.end_s:
                    future.cancel()
            answer = future.result()
        except asyncio.CancelledError as cancelled:
            if not future.done():
                future.cancel()
                raise
            answer = asyncio.CancelledError("the search ended before the answer came")
            answer.__cause__ = cancelled
        except Exception as caught:
            answer = caught
        took = round(session.config.clock() - began, 3)
        return AskedKernel(request, answer, took)

    def _costs(self, ask: Ask, answer: WriterAnswer) -> dict[str, Any]:
        """Return the numbers of tokens and US dollars of an answer."""
        usage = answer.generation.usage
        if answer.cached:
            return {"tokens": 0, "usd": 0.0, "cached": True}
        tokens = ask.worst_tokens if usage is None else usage.tokens.total
        return {"tokens": tokens, "usd": answer.generation.usd}

    def _task(self, node: str, move: str) -> WriterTask:
        """Return the task for a writer to make a state faster."""
        state = self._session.state
        speedup = math.exp(state.graph.nodes[node].value)
        over = state.start_speedup * speedup
        standard = standard_of(self._session.task.problem)
        standing = f"It is correct, and runs at {over:.2g} of {standard}'s speed"
        if node != state.start:
            standing += f", {speedup:.2g} times that of the kernel that the search began with"
        return WriterTask(
            state.variants[node].kernel(),
            f"{standing}.",
            move.removeprefix(PREFIX),
            {name: recipe for name, (_, recipe) in self._moves.items()},
            self._siblings(node),
            approximate=self._session.approximate,
        )

    def _repair(self, ask: Ask) -> WriterTask:
        """Return the task for a writer to repair a failure."""
        session, task = self._session, self._task(ask.node, ask.move)
        told = self._told(ask.number)
        earlier = "" if told is None or told["answer"] is None else told["answer"]["text"]
        if ask.outcome == "refused":
            parent = task.parent if told is None else _parent(told)
            shown = fit(earlier, _EARLIER_TOKENS)
            failure = (
                f"An answer before could not be used: {ask.message}\n\nThat answer was:\n\n{shown}"
            )
            standing = task.standing
            if told is not None and told["facts"]["FAILURE"]:
                standing = "It is not correct yet."
            return dataclasses.replace(task, parent=parent, standing=standing, failure=failure)
        parent = session.state.variants[ask.key].kernel()
        verdict = session.folder.read_verdict(ask.key)
        said = ask.status if verdict is None else str(feedback(verdict, Reply(parent)))
        standing = "It was written by this move, and is not correct yet."
        return dataclasses.replace(task, parent=parent, standing=standing, failure=said)

    def _siblings(self, node: str) -> list[str]:
        """Return a line about each kernel that was tried from a state."""
        state = self._session.state
        own = set(state.variants[node].applied)
        found = []
        for trial in state.history:
            if trial.node == node and trial.charged:
                steps = [s for s in state.variants[trial.proposed].applied if s not in own]
                found.append(f"{steps_in_words(steps)}: {self._outcome(trial, node)}")
        for ask in state.asks.at(node):
            if ask.outcome in ("repeated", "pruned"):
                why = (
                    "was known" if ask.outcome == "repeated" else "was expected to gain too little"
                )
                found.append(f"{ask.move} ({ask.summary}): {why}")
        return found

    def _outcome(self, trial: SearchTrial, node: str) -> str:
        if trial.value is None:
            return f"{trial.status} {trial.message}"[:_MOST_TOLD].rstrip()
        ratio = math.exp(trial.value - self._session.state.graph.nodes[node].value)
        return f"{ratio:.2g} times as fast"

    def _path(self, number: int) -> Any:
        return self._session.folder.path / ANSWERS / f"{number:04d}.json"

    def _write(self, request: WriterRequest, answer: WriterAnswer | None) -> None:
        """Write a request, with its answer if there is one."""
        data = {
            "ask": request.sample,
            "messages": [[each.role, each.content] for each in request.messages],
            "parent": [request.parent.source, request.parent.language],
            "facts": dict(request.facts),
            "answer": None if answer is None else answer.generation.to_dict(),
        }
        text = json.dumps(data, indent=1) + "\n"
        write_whole(self._path(request.sample), text, sync=answer is not None)

    def _told(self, number: int) -> dict[str, Any] | None:
        """Return a recorded request with its answer; None if the file is missing or damaged."""
        try:
            found = json.loads(self._path(number).read_text("utf-8"))
            return found if isinstance(found, dict) else None
        except (OSError, ValueError):
            return None


def vocabulary(
    language: str, approximate: bool, chosen: tuple[str, ...] = ()
) -> dict[str, tuple[float, str]]:
    """Return (weight, recipe) of the moves that a writer may be asked for, by id.

    These are the moves on kernels in a language; where none is known, the moves of all languages.

    Args:
        language: Language of the kernels.
        approximate: Whether moves that make results less accurate are among them.
        chosen: Ids of the moves to use; all if empty.
    """
    known = known_moves(language)
    if not known:
        known = {name: move for each in LANGUAGES for name, move in known_moves(each).items()}
    return {
        move.id: (move.weight, move.recipe)
        for move in known.values()
        if (not chosen or move.id in chosen) and (approximate or move.risk != "approximate")
    }


def _parent(told: Mapping[str, Any]) -> Kernel:
    source, language = told["parent"]
    return Kernel(source, language)


def _hardware(device: str) -> Hardware:
    """Return the known facts about the machine, for a writer's prompt."""
    found = machine(device)
    if device.startswith("cuda"):
        return Hardware(str(found["gpu"]).partition(",")[0])
    return Hardware(str(found["cpu"]), units=int(found["cores"]))
