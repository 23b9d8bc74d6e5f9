"""The connection to a Ray cluster. Part of `ray_evaluator`.

Contract:

- a head that does not answer is found out by a connection of our own. Ray itself tries for minutes
  to connect, and ends the whole process when a head has not answered for 60 s;
- Ray is left as it was found: a connection that the process already has is used and never closed,
  and handlers of signals stay, since Ray sets its own only from the main thread;
- the token of a cluster that is started here stays in memory. Ray would write it into the home
  folder.

Not covered: the Ray client (``ray://``). The process has to run on a node of the cluster.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.evaluators.ray_actor import JudgeActor

_ANSWER_S = 3.0
_LOCAL = "local"
_START = "start one by `ray start --head`, or give address='local' for a cluster on this machine"


class HeadSilent(ConnectionError):
    """The Ray head does not answer. It may come back."""


class RayCluster:
    """A connection to a cluster; threads may share it.

    Args:
        address: Address of the head, such as ``10.0.0.5:6379``; ``auto`` for the cluster that this
            machine belongs to, or that the variable ``RAY_ADDRESS`` names; ``local`` to start one
            on this machine.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._connected = self._owned = False
        self._head = ""

    def connect(self) -> None:
        """Connect to the cluster. Not to be called from the main thread.

        Raises:
            UsageError: If Ray is not installed, or no head answers at the address.
        """
        try:
            import ray
        except ImportError:
            raise UsageError("RayEvaluator needs Ray: pip install 'kernelgym[ray]'") from None
        with self._lock:
            if not ray.is_initialized():
                self._start(ray)
                self._owned = True
            self._head = ray.get_runtime_context().gcs_address
            self._connected = True

    def _start(self, ray: Any) -> None:
        address = _found(self.address)
        if address.startswith("ray://"):
            raise UsageError(
                f"{address!r} is an address of the Ray client, which is not supported: run on a "
                "node of the cluster, with address='auto' or the head's HOST:PORT"
            )
        if address != _LOCAL and ":" in address and not _answers(address):
            raise UsageError(
                f"no Ray head answers at {address}: it is gone, or the address is wrong; {_START}"
            )
        if address == _LOCAL and "RAY_AUTH_MODE" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        logger = logging.getLogger("ray")
        level = logger.level
        logger.setLevel(logging.ERROR)  # it warns of the handlers that it does not set
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                include_dashboard=False if address == _LOCAL else None,
            )
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            raise UsageError(
                f"cannot use the Ray cluster at {address!r}: {said}; {_START}"
            ) from None
        finally:
            logger.setLevel(level)
        # Else Ray prints notices of lost nodes to standard output, into the JSON of a command.
        ray._private.worker._worker_logs_enabled = False

    def disconnect(self) -> bool:
        """Give up the connection to the cluster, even if its head is gone.

        Returns:
            Whether it is closed, and its actors end; False if the process had it before.
        """
        with self._lock:
            self._connected = False
            if not self._owned:
                return False
            import ray

            self._owned = False
            ray.shutdown()
            ray._private.worker._worker_logs_enabled = True
            return True

    @property
    def head(self) -> str:
        """Address of the Ray cluster's head."""
        return self._head or self.address

    def answers(self) -> bool:
        """Return True if the Ray head takes connections."""
        return _answers(self._head)

    def places(self, needs: Mapping[str, float]) -> int:
        """Return the number of actors for which the cluster has the resources, busy ones included.

        Args:
            needs: Resources of one actor, such as ``{"GPU": 1}``.
        """
        import ray

        alive = [each["Resources"] for each in ray.nodes() if each["Alive"]]
        return sum(min(int(node.get(k, 0) // n) for k, n in needs.items()) for node in alive)

    def accelerator(self, node: str) -> str:
        """Return Ray's name for the GPUs of a node, such as ``H100``; empty if it knows none."""
        import ray

        names = [
            key.partition(":")[2]
            for each in ray.nodes()
            if each["NodeID"] == node
            for key in each["Resources"]
            if key.startswith("accelerator_type:")
        ]
        return names[0] if names else ""

    def start(self, needs: Mapping[str, float], calls: int, *arguments: Any) -> Any:
        """Begin to start an actor and return its handle; Ray waits for the resources.

        Args:
            needs: Resources of the actor.
            calls: Number of calls that the actor answers at the same time.
            *arguments: Arguments of `JudgeActor`.

        Raises:
            ConnectionError: If the connection was given up.
            HeadSilent: If the head does not answer.
        """
        import ray

        others = {name: need for name, need in needs.items() if name not in ("CPU", "GPU")}
        options = {
            "num_cpus": needs.get("CPU", 0),
            "num_gpus": needs.get("GPU", 0),
            "resources": others,
            "max_concurrency": calls,
            "max_restarts": 0,  # Ray restarts at once, and for ever: too fast where starting fails
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        self._refuse_if_silent()
        with self._lock:
            self._refuse_if_gone()
            return ray.remote(JudgeActor).options(**options).remote(*arguments)

    def call(self, handle: Any, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of an actor and return the future of its result.

        Raises:
            ConnectionError: If the connection was given up.
        """
        with self._lock:
            self._refuse_if_gone()
            future: Future[Any] = getattr(handle, method).remote(*arguments).future()
            return future

    def is_of_the_call(self, error: BaseException) -> bool:
        """Return True if a call failed in its actor, which can still be used."""
        import ray

        return isinstance(error, ray.exceptions.RayTaskError)

    def kill(self, handle: Any) -> None:
        """End an actor's process at once. Does nothing once the connection is given up.

        Raises:
            HeadSilent: If the head does not answer.
        """
        import ray

        if self._connected:
            self._refuse_if_silent()
        with self._lock:
            if self._connected:
                ray.kill(handle)

    def _refuse_if_silent(self) -> None:
        # Ray would wait for the head, and end the whole process after a minute.
        if not self.answers():
            raise HeadSilent(f"the Ray head at {self._head} does not answer")

    def _refuse_if_gone(self) -> None:
        # Without a connection, Ray would start a cluster of its own for the call.
        if not self._connected:
            raise ConnectionError("the connection to the Ray cluster was given up")


def _found(address: str) -> str:
    """Return the address that ``auto`` stands for; ``auto`` where only Ray can tell."""
    if address != "auto":
        return address
    if named := os.environ.get("RAY_ADDRESS"):
        return named
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    try:
        return file.read_text().strip() or address
    except OSError:
        return address


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False
