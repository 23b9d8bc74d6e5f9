"""Fixtures that several test folders share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A machine that is busy with other things fails no test.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("ci")

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


COLLECTED = pytest.StashKey[set[Path]]()
"""Files that were collected, for the test that none is left out."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COLLECTED] = set()


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        collector.config.stash[COLLECTED].add(collector.path)


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
def kernelbench_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out like KernelBench's repository, with two problems of ours per level."""
    root = tmp_path_factory.mktemp("checkout")
    for level, names in CHECKOUT.items():
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for index, name in enumerate(names):
            (folder / f"{name}.py").write_text(ADD.format(factor=10 * level + index))
    return root
