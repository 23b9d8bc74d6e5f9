"""`kernelgym serve`: what it refuses, and the keys of tenants."""

from __future__ import annotations

import pytest

from kernelgym.serve.keys import KeyRing
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from support.serve_process import serving


def test_keys_are_added_listed_and_revoked(run, tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    given = ("--keys", str(path))
    code, out, err = run("serve", "keys", "add", "ann", *given, "--problems", "--expires-days", "9")
    assert code == 0 and "shown once" in err
    tenant = KeyRing(path).tenant(out.strip())
    assert tenant.name == "ann" and tenant.roles == ("judge", "problems") and tenant.expires
    code, out, _ = run("serve", "keys", "list", *given)
    assert code == 0 and "ann" in out and "problems" in out
    assert run("serve", "keys", "revoke", "ann", *given)[0] == 0
    assert "no keys" in run("serve", "keys", "list", *given)[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "cuda:0"), "judges on cpu: give --device cpu"),
        (("--memory", "1GB"), "leave out --memory"),
        (("--batch", "jobs.jsonl"), "cannot be combined with --batch"),
    ],
)
def test_check_by_a_service_that_judges_otherwise_is_refused(
    run, tmp_path, arguments, told
) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("class ModelNew: ...")
    with serving(tmp_path / "state") as (_, url):
        given = (str(kernel), "--problem", "Synthetic/L1/2", "--evaluator", url)
        code, _, err = run("check", *given, *arguments)
    assert code == 2 and told in err


def test_check_is_judged_by_a_service(run, tmp_path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(SAMPLE_KERNELS["triton"].source)
    problem = tmp_path / "sample.py"
    problem.write_text(SAMPLE_PROBLEM.source)
    with serving(tmp_path / "state") as (_, url):
        given = (str(kernel), "--problem", str(problem), "--evaluator", url)
        code, _, err = run("check", *given)
        assert code == 2 and "has no problem" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "needs --state DIR"),
        (("keys", "add", "ann"), "needs --keys FILE"),
        (("keys", "add", "--keys", "f"), "takes keys add NAME"),
        (("keys", "list", "--keys", "/no/such/file"), "cannot be read"),
        (("key", "list"), "takes keys add NAME"),
        (("--state", "s", "--host", "0.0.0.0"), "there are no keys"),
        (("--state", "s", "--keys", "/no/such/file"), "kernelgym serve keys add"),
        (("--state", "s", "--problems"), "--problems needs"),
        (("--state", "s", "--keep-days", "0"), "above 0"),
        (("--state", "s", "--keep-days", "nan"), "above 0, got nan"),
        (("--state", "s", "--workers", "100000000"), "at least 1 and at most 1024"),
        (("--state", "s", "--tls-certificate", "c", "--tls-key", "k"), "TLS file 'c' cannot be"),
        (("keys", "add", "ann", "--keys", "f", "--expires-days", "-1"), "at most 36500, got -1"),
        (("keys", "add", "ann", "--keys", "f", "--expires-days", "99999999"), "at most 36500"),
        (("keys", "add", "ann", "--keys", "."), "the keys file '.' is a folder"),
        (("--state", "s", "--tls-key", "k"), "given together"),
        (("--state", "s", "--ruleset", "fair"), "unknown ruleset 'fair'"),
        (("--state", "s", "--suites", "Nothing"), "unknown suite 'Nothing'"),
        (("--state", "s", "--device", "cuda:9"), "device"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(
    run, arguments, told, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run("serve", *arguments)
    assert code == 2 and told in err
