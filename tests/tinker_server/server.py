"""Serve a model folder by skyrl's Tinker API on loopback, until Ctrl-C.

Runs in a virtual environment made from ``requirements.txt``, with skyrl 0.4.0 installed on top
without its dependencies (``pip install --no-deps --ignore-requires-python``). Contract:

- SIGINT and SIGTERM end API and engine; the engine also ends when the API is killed, since two
  engines on one database answer each other's requests;
- database and checkpoints lie in ``--folder`` and outlive the process;
- the same program runs the engine (``--engine``), so that both processes are patched alike.

It does not cover GPUs, several machines, or models beyond what skyrl's JAX backend loads.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import typing
from pathlib import Path

import typing_extensions

HERE = Path(__file__).resolve()
ADAPTERS = 16
"""Slots for adapters: models in training and snapshots that are sampled."""
BACKEND = {
    "max_lora_adapters": ADAPTERS,
    "max_lora_rank": 32,
    "train_micro_batch_size": 16,
    "sample_max_num_sequences": 32,
}


def main() -> None:
    """Run the API, or the engine that it has started."""
    # Pydantic refuses typing.TypedDict before Python 3.12, and skyrl's types use it.
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if sys.argv[1:2] == ["--engine"]:
        _run_engine(sys.argv[2:])
    else:
        _run_api(_arguments())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", required=True, help="folder of the base model and its tokenizer")
    parser.add_argument("--port", type=int, default=8004)
    parser.add_argument("--folder", required=True, help="where database and checkpoints lie")
    return parser.parse_args()


def _run_api(given: argparse.Namespace) -> None:
    import uvicorn
    from bridge import Bridge
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    folder = Path(given.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    api.app.state.engine_config = EngineConfig(
        base_model=str(Path(given.model).resolve()),
        backend="jax",
        backend_config=BACKEND,
        checkpoints_base=folder / "checkpoints",
        database_url=f"sqlite:///{folder / 'tinker.db'}",
    )

    def engine_command(_: list[str], config: typing.Any) -> list[str]:
        return [sys.executable, str(HERE), "--engine", *config_to_argv(config)]

    # skyrl starts its engine by `uv run` inside its own checkout.
    api._build_uv_run_cmd_engine = engine_command
    uvicorn.run(Bridge(api.app), host="127.0.0.1", port=given.port, log_level="warning")


def _run_engine(arguments: list[str]) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: ends with the API
    if os.getppid() == 1:
        sys.exit("the API that started this engine is gone")
    import engine

    engine.mend()
    from skyrl.tinker.engine import main as run

    sys.argv = ["skyrl.tinker.engine", *arguments]
    run()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()
