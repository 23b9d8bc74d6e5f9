"""Keys of tenants: the file, the roles, the rate limit."""

from __future__ import annotations

import pytest

from kernelgym import UsageError
from kernelgym.serve.keys import ANONYMOUS, KeyRing, Tenant, add_key, read_keys, revoke_key


def test_added_key_opens_its_tenant_and_is_not_in_the_file(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    key = add_key(path, Tenant(name="ann", roles=("judge", "problems")))
    ring = KeyRing(path)
    assert ring.tenant(key).name == "ann"
    assert ring.tenant("kg_other") is None and ring.tenant("") is None
    assert key not in path.read_text() and path.stat().st_mode & 0o077 == 0
    assert ring.tenant("\ud800") is None


def test_revoked_key_is_refused_without_a_restart(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    key, other = (add_key(path, Tenant(name=name)) for name in ("ann", "bob"))
    ring = KeyRing(path)
    assert ring.tenant(key) is not None
    revoke_key(path, "ann")
    assert ring.tenant(key) is None and ring.tenant(other) is not None
    with pytest.raises(UsageError, match=r"unknown key 'ann'.*bob"):
        revoke_key(path, "ann")


def test_file_that_is_broken_while_serving_leaves_the_keys_as_they_were(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    key = add_key(path, Tenant(name="ann"))
    ring = KeyRing(path)
    path.write_text("keys: [")
    assert ring.tenant(key) is not None


def test_expired_key_is_refused(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    old = add_key(path, Tenant(name="old", expires="2020-01-31"))
    new = add_key(path, Tenant(name="new", expires="2999-01-31"))
    ring = KeyRing(path)
    assert ring.tenant(old) is None and ring.tenant(new) is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("keys: [", "cannot be read"),
        ("keys: [{name: a}, {name: a}]", "two keys have the name 'a'"),
        ("keys: [{name: a, rolls: [judge]}]", "did you mean roles"),
        ("keys: [{name: a, roles: [boss]}]", "boss"),
        ("keys: [{name: a, expires: soon}]", "expires is a date"),
        ("keys: [{name: a, queued: 0}]", "at least 1"),
        ("keys: 3", "keys"),
    ],
)
def test_keys_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, text, told) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        KeyRing(path)


def test_dates_without_quotes_are_read_as_yaml_has_them(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys: [{name: a, sha256: aa, expires: 2999-01-31}]")
    assert read_keys(path)[0].expires == "2999-01-31"


def test_name_that_is_taken_or_empty_is_refused(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    add_key(path, Tenant(name="ann"))
    for name, told in (("ann", "has a key 'ann'"), ("", "needs a name"), ("a\n", "needs a name")):
        with pytest.raises(UsageError, match=told):
            add_key(path, Tenant(name=name))


def test_rate_limit_refuses_more_requests_than_a_minute_has(tmp_path) -> None:
    ring = KeyRing(None)
    tenant = Tenant(name="ann", per_minute=2)
    assert [ring.wait_s(tenant) for _ in range(2)] == [0.0, 0.0]
    assert 0.0 < ring.wait_s(tenant) <= 60.0
    assert ring.wait_s(Tenant(name="ann", per_minute=3)) == 0.0, "the file was changed"


def test_server_without_keys_takes_everyone_but_no_problems_of_theirs() -> None:
    assert KeyRing(None).tenant("") is ANONYMOUS and "problems" not in ANONYMOUS.roles
