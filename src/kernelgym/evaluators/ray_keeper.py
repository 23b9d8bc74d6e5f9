"""The thread that keeps a `RayEvaluator`'s actors. Part of `ray_evaluator`.

`ActorKeeper` connects to the cluster, starts actors, replaces lost ones, and has a `Dispatcher`
give jobs to those that are there. A post is a place for one actor at a time.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future
from typing import Any

from kernelgym.capabilities import Capabilities, DeviceHealth
from kernelgym.errors import JudgeError, UsageError
from kernelgym.evaluators.dispatch import Dispatcher, SlotLost
from kernelgym.evaluators.ray_actor import ActorReport
from kernelgym.evaluators.ray_cluster import HeadSilent, RayCluster
from kernelgym.evaluators.ray_posts import (
    ActorLost,
    ActorPlan,
    ActorPost,
    LiveActor,
    differing,
    give,
    line_of,
)
from kernelgym.types import Job, Verdict
from kernelgym.verdict import unavailable

_TICK_S = 0.25
_LOOK_S = 2.0  # between two looks at the head and at the size of the cluster
_SETTLE_S = 10.0  # from the first actor on, for the others, so that a mixed cluster is refused
_HEAD_GONE_S = 15.0  # Ray ends the process after 60 s without its head
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_MOST_DOUBLINGS = 6
_FAILED_STARTS = 3
_CLOSE_S = 10.0
_LOG = logging.getLogger(__name__)


class ActorKeeper:
    """Keeps the actors of one evaluator and judges jobs by them.

    Args:
        cluster: Connection to the cluster; made, used and given up here.
        plan: Class, resources and number of the actors.
    """

    def __init__(self, cluster: RayCluster, plan: ActorPlan) -> None:
        self._cluster, self._plan = cluster, plan
        self._dispatcher = Dispatcher(self._judge, (), by_problem=True)
        self._inbox: queue.SimpleQueue[tuple[ActorPost, LiveActor, Any]] = queue.SimpleQueue()
        self._changed = threading.Condition(threading.RLock())
        self._posts: list[ActorPost] = []
        self._to_end: list[LiveActor] = []  # lost actors that have still to be ended
        self._by_slot: dict[int, tuple[ActorPost, LiveActor]] = {}
        self._refusal: UsageError | None = None
        self._model: Capabilities | None = None
        self._is_connected = self._closed = False
        self._first_report_at = float("inf")
        self._looked_at = self._connect_at = float("-inf")
        self._served_at = self._answered_at = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name="kernelgym-ray", daemon=True)

    def start(self) -> None:
        """Connect to the Ray cluster and start to launch actors, without waiting for them.

        Raises:
            UsageError: If the cluster cannot be used.
        """
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._is_connected or self._refusal is not None)
            if self._refusal is not None:
                raise self._refusal

    def model(self) -> tuple[Capabilities, list[ActorReport]]:
        """Return the capabilities that all actors share, and the reports of those there now.

        Raises:
            UsageError: If actors cannot be used, or none came in time.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._refusal is not None or self._model is not None or self._closed,
                self._plan.patience_s,
            )
            if self._refusal is not None:
                raise self._refusal
            if self._model is None:
                raise UsageError(self._why_none())
            return self._model, [
                post.actor.report
                for post in self._posts
                if post.actor is not None and post.actor.slots and post.actor.report is not None
            ]

    def health(self) -> tuple[DeviceHealth, ...]:
        """Return the counts of each post."""
        with self._changed:
            return tuple(post.health() for post in self._posts)

    def submit(self, job: Job, seed: str) -> Future[Verdict]:
        """Return the future of a job's verdict.

        Raises:
            UsageError: If the keeper is closed.
        """
        with self._changed:
            if self._closed:
                raise UsageError("this RayEvaluator is closed; make another one")
            if self._refusal is None:
                return self._dispatcher.submit(job, seed)
        refused: Future[Verdict] = Future()
        refused.set_exception(self._refusal)
        return refused

    def close(self) -> None:
        """End the actors and the connection. Closing twice is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(3 * _CLOSE_S)

    def _judge(self, job: Job, seed: str, slot: int) -> Verdict:
        """Have the actor of a slot judge a job, and wait for the outcome."""
        with self._changed:  # `_use` may still be at work on this slot
            post, actor = self._by_slot.get(slot, (None, None))
        try:
            if post is None or actor is None:
                raise ActorLost("the slot is gone", had_begun=False)
            answer = self._call(actor, "judge", job, seed).result()
        except ActorLost as lost:
            if self._closed:
                return self._unavailable("closed", "the evaluator was closed")
            if post is None or not lost.had_begun:
                raise SlotLost from None
            with self._changed:
                post.lost_calls += 1
            why = f"the actor that judged was lost: {lost}"
            raise SlotLost(self._unavailable("worker_lost", why)) from None
        with self._changed:
            post.failures = 0
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Verdict)
        return answer

    def _unavailable(self, code: str, why: str) -> Verdict:
        return unavailable(why, code, self._plan.device, self._plan.ruleset)

    def _call(self, actor: LiveActor, method: str, *arguments: Any) -> Future[Any]:
        """Return the future of an actor's answer, which raises `ActorLost` if that is lost.

        Ray's own future is never done once the connection is given up.
        """
        answer: Future[Any] = Future()
        with self._changed:
            if actor.lost:
                raise ActorLost(actor.lost, had_begun=False)
            actor.answers.add(answer)
        try:
            given = self._cluster.call(actor.handle, method, *arguments)
        except ConnectionError as error:
            raise ActorLost(str(error), had_begun=False) from None
        given.add_done_callback(lambda done: self._answered(actor, answer, done))
        return answer

    def _answered(self, actor: LiveActor, answer: Future[Any], given: Future[Any]) -> None:
        """Pass on a call's result or own error; any other error means that the actor is lost."""
        error = given.exception()
        if error is None:
            with self._changed:
                actor.answers.discard(answer)
            give(answer, given.result())
        elif self._cluster.is_of_the_call(error):
            with self._changed:
                actor.answers.discard(answer)
            give(answer, JudgeError(f"the actor could not be asked: {line_of(error)}"))
        else:
            self._lose(actor, line_of(error))

    def _lose(self, actor: LiveActor, why: str) -> None:
        """Stop giving jobs to an actor, and put its jobs back among the waiting ones."""
        with self._changed:
            if actor.lost:
                return
            actor.lost = why or "lost"
            for slot in actor.slots:
                self._dispatcher.remove_slot(slot)
                del self._by_slot[slot]
            actor.slots = []
            answers, actor.answers = actor.answers, set()
        for answer in answers:
            give(answer, ActorLost(actor.lost))

    # All that follows runs in the keeper's thread.

    def _keep(self) -> None:
        """Connect to the cluster, then start and replace actors until the keeper is closed."""
        while not self._closed:
            try:
                self._receive()
                now = time.monotonic()
                if not self._is_connected:
                    self._connect(now)
                elif self._head_answers(now):
                    self._end_lost()
                    self._start_actors(now)
                    self._settle(now)
                self._lose_patience(now)
            except HeadSilent:  # `_head_answers` decides whether it is gone
                time.sleep(_TICK_S)
            except Exception as error:  # such as Ray's, of a head that ends in this moment
                _LOG.exception("the keeper of Ray's actors continues after an error")
                if not self._is_connected and not self._posts:
                    self._refuse(UsageError(f"the Ray cluster cannot be used: {line_of(error)}"))
                time.sleep(_TICK_S)
        self._end()

    def _receive(self) -> None:
        """Handle the messages that have come from actors; wait a moment for the first one."""
        try:
            message = self._inbox.get(timeout=_TICK_S if self._is_connected else 0.01)
            while True:
                self._handle(*message)
                message = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _handle(self, post: ActorPost, actor: LiveActor, message: Any) -> None:
        """Take an actor in by its report, or replace one that is lost."""
        if post.actor is not actor:
            return
        if actor.lost or not isinstance(message, ActorReport):
            if isinstance(message, UsageError) and self._model is None:
                self._refuse(message)
            self._replace(post, actor, actor.lost or line_of(message))
            return
        actor.report = message
        self._first_report_at = min(self._first_report_at, time.monotonic())
        if self._model is None:
            return
        if message.capabilities.provenance == self._model.provenance:
            self._use(post, actor)
            return
        facts = differing(self._model, message.capabilities)
        why = f"{message.host} is not like the other machines: {facts}"
        _LOG.warning("an actor is not used: %s", why)
        post.failures = _MOST_DOUBLINGS  # a long pause: only another machine helps
        self._replace(post, actor, why)

    def _use(self, post: ActorPost, actor: LiveActor) -> None:
        """Add a slot for an actor, so that it is given jobs."""
        assert actor.report is not None
        with self._changed:
            if actor.lost:
                return
            for _ in range(self._plan.workers):
                slot = self._dispatcher.add_slot(actor.report.device)
                self._by_slot[slot] = post, actor
                actor.slots.append(slot)
            self._changed.notify_all()

    def _replace(self, post: ActorPost, actor: LiveActor, why: str) -> None:
        """End an actor for good; another one is started after a pause."""
        self._lose(actor, why)
        pause_s = _FIRST_PAUSE_S * 2 ** min(post.failures, _MOST_DOUBLINGS)
        with self._changed:
            post.actor, post.reason = None, why
            post.retry_at = time.monotonic() + min(pause_s, _LONGEST_PAUSE_S)
            post.failures += 1
            post.lost_actors += 1
            self._to_end.append(actor)
        if self._model is None and all(each.failures >= _FAILED_STARTS for each in self._posts):
            self._refuse(UsageError(f"no actor can be started on the Ray cluster: {why}"))

    def _connect(self, now: float) -> None:
        if now < self._connect_at or self._refusal is not None:
            return
        self._connect_at = now + _LOOK_S
        try:
            self._cluster.connect()
        except UsageError as refusal:
            if not self._posts:  # else it was there before, and may come back
                self._refuse(refusal)
            return
        self._answered_at = self._looked_at = time.monotonic()
        if self._posts or self._add_posts():
            with self._changed:
                self._is_connected = True
                self._changed.notify_all()

    def _add_posts(self) -> bool:
        """Create the missing posts of actors; refuse a cluster that has no room for any."""
        wanted = self._plan.actors
        if wanted is None:
            wanted = self._cluster.places(self._plan.needs)
            if not wanted and not self._posts:
                needs = " and ".join(f"{need:g} {name}" for name, need in self._plan.needs.items())
                self._refuse(
                    UsageError(
                        f"the Ray cluster at {self._cluster.head} has no node with {needs}, which "
                        "one actor needs; add such a node, or give actors=N to wait for N actors"
                    )
                )
        with self._changed:
            self._posts += [ActorPost(number) for number in range(len(self._posts), wanted)]
        return bool(self._posts)

    def _head_answers(self, now: float) -> bool:
        """Return True if Ray's head accepts connections; disconnect if it has not for too long."""
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            if self._cluster.answers():
                self._answered_at = time.monotonic()
                self._add_posts()
        if self._answered_at >= self._looked_at:
            return True
        if now - self._answered_at >= _HEAD_GONE_S:
            why = f"the Ray head at {self._cluster.head} is gone"
            _LOG.warning("%s; jobs wait until it is back", why)
            self._is_connected = False
            ended = self._cluster.disconnect()  # first: Ray would wait for the head to end actors
            with self._changed:
                for post in self._posts:
                    post.reason = why
                    if post.actor is not None:
                        self._replace(post, post.actor, why)
                self._to_end = [] if ended else self._to_end
        return False

    def _end_lost(self) -> None:
        """End the processes of lost actors."""
        while self._to_end:
            actor = self._to_end.pop()
            try:
                self._cluster.kill(actor.handle)
            except HeadSilent:
                self._to_end.append(actor)
                raise

    def _start_actors(self, now: float) -> None:
        for post in self._posts:
            if post.actor is not None or now < post.retry_at or self._refusal is not None:
                continue
            plan = self._plan
            calls = plan.workers + 2  # `stay` takes one, and `close` must not wait for kernels
            handle = self._cluster.start(plan.needs, calls, plan.made_by, dict(plan.arguments))
            post.actor = LiveActor(handle)
            self._listen(post, post.actor, "report")
            self._listen(post, post.actor, "stay")

    def _listen(self, post: ActorPost, actor: LiveActor, method: str) -> None:
        """Have the outcome of a call put into the keeper's inbox."""

        def tell(done: Future[Any]) -> None:
            error = done.exception()
            self._inbox.put((post, actor, done.result() if error is None else error))

        try:
            self._call(actor, method).add_done_callback(tell)
        except ActorLost as lost:
            self._inbox.put((post, actor, lost))

    def _settle(self, now: float) -> None:
        """Compare the provenance of the first actors, and use them if they are alike."""
        actors = [post.actor for post in self._posts if post.actor is not None]
        reports = [each.report for each in actors if each.report is not None and not each.lost]
        if self._model is not None or not reports or self._refusal is not None:
            return
        if len(reports) < len(self._posts) and now - self._first_report_at < _SETTLE_S:
            return
        if len({each.capabilities.provenance for each in reports}) > 1:
            self._refuse(self._mixed(reports))
            return
        with self._changed:
            self._model = reports[0].capabilities
            for post in self._posts:
                if post.actor is not None and post.actor.report is not None:
                    self._use(post, post.actor)

    def _mixed(self, reports: list[ActorReport]) -> UsageError:
        """Return the error for a cluster whose machines are not alike."""
        groups: dict[tuple[str, ...], list[ActorReport]] = {}
        for each in reports:
            groups.setdefault(each.capabilities.provenance, []).append(each)
        ordered = sorted(groups.values(), key=len, reverse=True)
        listed = []
        for group in ordered:
            hosts = ", ".join(sorted({each.host for each in group}))
            kind = self._cluster.accelerator(group[0].node)
            also = f" (device_kind {kind!r})" if kind else ""
            listed.append(f"{len(group)} of {group[0].capabilities.device_kind}{also} on {hosts}")
        facts = differing(ordered[0][0].capabilities, ordered[1][0].capabilities)
        return UsageError(
            f"the machines of the Ray cluster are not alike, so verdicts would not be comparable: "
            f"{'; '.join(listed)}; they differ in {facts}. Give device_kind to use one kind, "
            "or make the machines alike"
        )

    def _refuse(self, refusal: UsageError) -> None:
        """Fail all jobs, waiting and later ones, with an error that is the caller's fault."""
        with self._changed:
            self._refusal = self._refusal or refusal
            self._changed.notify_all()
        self._dispatcher.settle_waiting(self._refusal)
        for post in self._posts:
            if post.actor is not None:
                self._lose(post.actor, str(refusal))
                self._to_end.append(post.actor)

    def _lose_patience(self, now: float) -> None:
        """Make the waiting jobs unavailable if no actor has been available for too long."""
        if self._by_slot:
            self._served_at = now
        elif now - self._served_at >= self._plan.patience_s:
            self._served_at = now
            self._dispatcher.settle_waiting(self._unavailable("no_actor", self._why_none()))

    def _why_none(self) -> str:
        """Return the reason why no actor is available, as a sentence."""
        reason = next((post.reason for post in self._posts if post.reason), "")
        reason = reason or "its resources are in use, or machines have still to come (`ray status`)"
        return f"no actor of the Ray cluster came within {self._plan.patience_s:g} s: {reason}"

    def _end(self) -> None:
        """End all actors and the connection."""
        if self._is_connected and not self._cluster.answers():
            self._cluster.disconnect()
        actors = [post.actor for post in self._posts if post.actor is not None]
        actors += [actor for actor in self._to_end if actor not in actors]
        closing = []
        for actor in actors:
            try:
                if actor.report is not None:
                    closing.append(self._call(actor, "close"))
            except ActorLost:
                pass
        end = time.monotonic() + _CLOSE_S
        for each in closing:
            try:
                each.result(max(0.0, end - time.monotonic()))
            except (ActorLost, JudgeError, TimeoutError) as error:  # it is killed below
                _LOG.debug("an actor was not closed: %s", error)
        for actor in actors:
            self._lose(actor, "the evaluator was closed")
            try:
                self._cluster.kill(actor.handle)
            except Exception as error:  # it ends with the connection; jobs wait for the lines below
                _LOG.debug("an actor was not ended: %s", error)
        closed = self._unavailable("closed", "the evaluator was closed")
        self._dispatcher.settle_waiting(closed)
        self._cluster.disconnect()
