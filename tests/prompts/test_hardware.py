"""Facts of GPUs by name."""

from __future__ import annotations

import pytest

from kernelgym.errors import UnknownName
from kernelgym.prompts.hardware import GPUS, Hardware, hardware_of, known_gpu


@pytest.mark.parametrize(
    "name", [*GPUS, "nvidia h100", "rtx_4090", "amd instinct_mi300x", "NVIDIA H100 80GB HBM3"]
)
def test_a_known_name_brings_all_facts(name: str) -> None:
    facts = known_gpu(name)
    assert facts is not None and facts.name.startswith(("NVIDIA ", "AMD "))
    assert all(getattr(facts, field) for field in Hardware.__dataclass_fields__)


@pytest.mark.parametrize(
    ("architecture", "told"),
    [("gfx942", "64, not 32"), ("gfx90a", "64, not 32"), ("gfx1100", "32, as"), ("sm_90", "")],
)
def test_lanes_of_a_wave_are_told_of_amd_gpus_alone(architecture: str, told: str) -> None:
    text = str(Hardware("mine", architecture))
    assert ("Lanes of a wave" in text) == bool(told) and told in text


def test_name_of_a_driver_brings_the_facts_of_its_card_and_no_other() -> None:
    assert known_gpu("NVIDIA H100 80GB HBM3") is GPUS["H100"]
    assert known_gpu("NVIDIA GeForce RTX 4090") is GPUS["RTX 4090"]
    assert known_gpu("NVIDIA H100 PCIe") is None


def test_facts_and_mappings_are_taken_as_they_are() -> None:
    facts = Hardware("mine", units=4)
    assert hardware_of(facts) is facts
    assert hardware_of({"name": "mine", "units": 4}) == facts and hardware_of(None) is None


def test_an_unknown_name_is_refused_with_what_is_known() -> None:
    with pytest.raises(UnknownName, match=r"A100.*Hardware\(name=") as refused:
        hardware_of("H1000")
    assert refused.value.given == "H1000"
