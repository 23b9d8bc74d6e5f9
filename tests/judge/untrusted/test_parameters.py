"""New values of parameters, which take effect at once or in the middle of a graph."""

import os

import pytest
import torch
from torch import nn

from kernelgym.judge.untrusted.parameters import NewParameters


class _Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(3)


@pytest.fixture
def sent():
    """Return a receiver, and a function that sends it values by name."""
    coming = []
    parameters = NewParameters(lambda fd, size, regions: list(coming))

    def send(**values):
        coming[:] = values.values()
        parameters.receive([[f"norm.{name}", {}] for name in values], os.dup(0), 0)

    return parameters, send


def test_values_are_copied_by_name_and_missing_names_are_told(sent):
    parameters, send = sent
    model = _Model()
    send(weight=torch.full((3,), 2.0), other=torch.ones(3), bias=torch.ones(4))
    assert parameters.copy_to(model) == ["norm.other", "norm.bias"]
    assert model.norm.weight.tolist() == [2, 2, 2] and not model.norm.bias.any()


def test_staged_values_arrive_where_the_graph_changes_parameters(sent):
    parameters, send = sent
    model = _Model()
    send(weight=torch.full((3,), 2.0))
    parameters.copy_to(model)
    parameters.stage(model)
    send(weight=torch.full((3,), 5.0), bias=torch.ones(3))
    parameters.arrive(model)
    assert model.norm.weight.tolist() == [2, 2, 2]  # until the place in the graph
    assert model.norm.bias.tolist() == [1, 1, 1]  # was not among the names that were staged
    before = model.norm.weight._version
    parameters.change()
    assert model.norm.weight.tolist() == [5, 5, 5] and model.norm.weight._version > before


def test_values_that_replace_parameters_at_once_stay_after_a_change(sent):
    parameters, send = sent
    model = _Model()
    send(weight=torch.full((3,), 2.0))
    parameters.copy_to(model)
    parameters.stage(model)
    send(weight=torch.full((3,), 7.0))
    parameters.copy_to(model)
    parameters.change()
    assert model.norm.weight.tolist() == [7, 7, 7]


def test_nothing_changes_without_staged_parameters(sent):
    parameters, send = sent
    model = _Model()
    send(weight=torch.full((3,), 2.0))
    parameters.stage(None)
    parameters.arrive(model)
    parameters.change()
    assert model.norm.weight.tolist() == [2, 2, 2]
