"""`kernelgym serve`: what it refuses, and the keys of tenants."""

from __future__ import annotations

import pytest

from kernelgym.serve.keys import KeyRing


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
        ((), "needs --state DIR"),
        (("keys", "add", "ann"), "needs --keys FILE"),
        (("keys", "add", "--keys", "f"), "takes keys add NAME"),
        (("keys", "list", "--keys", "/no/such/file"), "cannot be read"),
        (("key", "list"), "takes keys add NAME"),
        (("--state", "s", "--host", "0.0.0.0"), "there are no keys"),
        (("--state", "s", "--keys", "/no/such/file"), "kernelgym serve keys add"),
        (("--state", "s", "--problems"), "--problems is of"),
        (("--state", "s", "--keep-days", "0"), "above 0"),
        (("--state", "s", "--tls-key", "k"), "given together"),
        (("--state", "s", "--ruleset", "fair"), "unknown ruleset 'fair'"),
        (("--state", "s", "--suites", "Nothing"), "unknown suite 'Nothing'"),
        (("--state", "s", "--device", "cuda:9"), "device"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(run, arguments, told) -> None:
    code, _, err = run("serve", *arguments)
    assert code == 2 and told in err
