"""What an extension may not call, since it would hide what torch computes."""

from __future__ import annotations

import re

import pytest

from kernelgym.answers.screening import rules, screen
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_KERNELS
from kernelgym.types import Kernel


def codes(kernel: Kernel) -> set[str]:
    return {finding.code for finding in screen(kernel, RULESETS["strict"])}


def extension(text: str) -> Kernel:
    source = SAMPLE_KERNELS["cpp"].source
    assert '\n"""\n\nextension' in source
    return Kernel(source.replace('\n"""\n\nextension', f'\n{text}\n"""\n\nextension'), "cpp")


GUARD = "c10::impl::ExcludeDispatchKeyGuard guard"
HIDING = f"{GUARD}(c10::DispatchKeySet(c10::DispatchKey::Python));"


@pytest.mark.parametrize(
    "text",
    [
        HIDING,
        'py::exec("...");',
        f'const char* s = "//"; {HIDING}',
        f"char c = '\\\\'; char d = '\"'; /* \" */ {HIDING}",
        f'auto s = R"x(/* )" )x"; {HIDING}',
        f'auto s = "/\\\\\n/*"; {HIDING}',
        f'auto s = "\\\\ \n//"; {HIDING}',
        f"{GUARD}(c10::autograd_dispatch_keyset | c10::python_ks);",
        'TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("clone", cloned); }',
        "TORCH_LIBRARY_IMPL(_, CPU, m) { m.fallback(all); }",
        "c10::Dispatcher::singleton().registerImpl(name, key, kernel);",
    ],
)
def test_an_extension_may_not_hide_what_it_computes(text: str) -> None:
    assert "forbidden_import" in codes(extension(text))


@pytest.mark.parametrize(
    "text",
    [
        f"// {HIDING}",
        f"/* {HIDING} */",
        f'auto s = "//"; // {HIDING}',
        f"// goes on \\\\\n{HIDING}",
        f"{GUARD}(c10::autograd_dispatch_keyset);",
        f"{GUARD}{{c10::autograd_dispatch_keyset_with_ADInplaceOrView}};",
    ],
)
def test_an_extension_may_work_below_autograd(text: str) -> None:
    assert codes(extension(text)) == set()


EXCLUDES = "ExcludeDispatchKeyGuard"


@pytest.mark.parametrize(
    ("text", "hides"),
    [
        (f"c10::impl::{EXCLUDES} guard(c10::autograd_dispatch_keyset);", False),
        (
            f"c10::impl::{EXCLUDES}  guard \n {{ autograd_dispatch_keyset_with_ADInplaceOrView }};",
            False,
        ),
        (f"c10::impl::{EXCLUDES}(autograd_dispatch_keyset)", False),
        (f"c10::impl::{EXCLUDES} guard(c10::DispatchKey::Python);", True),
        (f"c10::impl::{EXCLUDES} guard", True),
        (f"c10::impl::{EXCLUDES}" + " \t" * 50_000 + ";", True),
    ],
)
def test_guard_hides_work_except_below_autograd(text, hides):
    assert (rules._HIDING_TEXT.search(text) is not None) is hides


def test_hiding_text_repeats_blanks_possessively():
    # Two repetitions that can share blanks try every division of them: quadratic time.
    assert not re.search(r"\\s\*(?!\+)|\\w\*\\s", rules._HIDING_TEXT.pattern)
