"""Fixtures that several test folders share."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A machine that is busy with other things fails no test. The quick suite tries the same few
# examples each time; `make test-all` tries a hundred new ones.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("random", deadline=None)
settings.load_profile("ci")

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers of pytest-xdist share the cores: where each had a thread a core, a third of the
    # suite's CPU time went into threads of torch that wait for each other in busy loops.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Python looks for garbage after every 700 new objects, and torch, transformers and thousands of
# tests leave it much to look through: a third of the time in which tests are collected.
gc.set_threshold(20_000, 10, 10)

ADD = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a + b * {factor}


def get_inputs():
    return [torch.rand(8, 16), torch.rand(8, 16)]


def get_init_inputs():
    return []
"""


ADDRESS_SPACE = resource.getrlimit(resource.RLIMIT_AS)


@pytest.fixture(autouse=True)
def own_address_space() -> Iterator[None]:
    """Lift the limit that a worker in this process sets: sanitised programs need terabytes."""
    yield
    resource.setrlimit(resource.RLIMIT_AS, ADDRESS_SPACE)


COLLECTED = pytest.StashKey[set[Path]]()
"""Files that were collected, for the test that none is left out."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COLLECTED] = set()


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        collector.config.stash[COLLECTED].add(collector.path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests of the judge to one worker of pytest-xdist, and the others by file.

    They share evaluators for the session, of which each costs six CPU seconds in every worker.
    """
    from xdist.scheduler import LoadFileScheduling

    class JudgeInOneWorker(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "judge" if nodeid.startswith("tests/judge/") else super()._split_scope(nodeid)

    return JudgeInOneWorker(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def collected_files(request: pytest.FixtureRequest) -> set[Path]:
    """Files of tests that this run of pytest has collected."""
    return request.config.stash[COLLECTED]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew from what is said now"
    )


CHECKOUT = {
    1: ("1_Add", "2_AddTwice"),
    2: ("1_AddThrice", "10_AddTen"),
    3: ("1_Block", "2_Block"),
    4: ("1_Net", "2_Net"),
}


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for built extensions, empty at first and shared by all workers of pytest-xdist.

    The first extension built in an empty folder costs ten CPU seconds more than the next ones.
    """
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "judge-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def kernelbench_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out like KernelBench's repository, with two problems of ours per level."""
    root = tmp_path_factory.mktemp("checkout")
    for level, names in CHECKOUT.items():
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for index, name in enumerate(names):
            (folder / f"{name}.py").write_text(ADD.format(factor=10 * level + index))
    return root
