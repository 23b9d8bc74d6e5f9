"""What was compiled ahead, packed and handed on: files only, and bounded."""

import io
import os
import socket
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.session import compiled_cache
from kernelgym.judge.session.compiled_cache import as_file, pack, relocate

names = st.text("abcdefgh0123_.-", min_size=1, max_size=12).filter(lambda n: n.strip("."))
trees = st.dictionaries(st.tuples(names, names), st.binary(max_size=300), max_size=6)


def _cache(folder, files):
    """Make a Triton cache folder with these files, by their paths below it."""
    cache = folder / "triton_cache_dir"
    cache.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        target = cache / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return cache


def _files(packed):
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}


def _unpack(packed, folder):
    """As a candidate does it."""
    fd = as_file(packed)
    with os.fdopen(fd, "rb") as file, tarfile.open(fileobj=file) as archive:
        archive.extractall(folder, filter="data")


@given(trees)
def test_what_is_packed_is_what_is_unpacked(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("scratch")
    files = {f"d{a}/{b}": data for (a, b), data in tree.items()}
    packed = pack(_cache(folder, files))
    moved = relocate(packed, "/elsewhere")
    assert _files(packed) == _files(moved) == files
    _unpack(moved, folder / "new")
    found = (folder / "new").rglob("*")
    assert {
        str(path.relative_to(folder / "new")): path.read_bytes() for path in found if path.is_file()
    } == files


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_only_lists_of_files_are_rewritten_and_say_the_new_place(tmp_path_factory, head, tail):
    folder = tmp_path_factory.mktemp("scratch")
    listing = head + f'{{"a": "{folder}/triton_cache_dir/k/a.cubin"}}'.encode() + tail
    cache = _cache(folder, {"k/__grp__f.json": listing, "k/a.cubin": listing})
    packed = pack(cache)
    assert str(folder).encode() not in _files(packed)["k/__grp__f.json"]
    moved = _files(relocate(packed, "/tmp/another-place"))
    old, new = str(folder).encode(), b"/tmp/another-place"
    assert moved == {
        "k/__grp__f.json": listing.replace(old, new),
        "k/a.cubin": listing,
    }


def test_links_and_what_is_no_file_are_left_out(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("treasure")
    cache = _cache(tmp_path / "scratch", {"k/a.cubin": b"code"})
    (cache / "k" / "stolen").symlink_to(secret)
    (cache / "elsewhere").symlink_to(tmp_path)
    (cache / "dangling").symlink_to("/nowhere")
    os.mkfifo(cache / "k" / "fifo")  # reading it would take for ever
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(cache / "s"))
        packed = pack(cache)
    assert _files(packed) == {"k/a.cubin": b"code"}
    assert b"treasure" not in packed


def test_a_folder_that_is_a_link_or_missing_holds_nothing(tmp_path):
    elsewhere = _cache(tmp_path / "private", {"secret.txt": b"treasure"})
    cache = tmp_path / "scratch" / "triton_cache_dir"
    cache.parent.mkdir()
    assert _files(pack(cache)) == {}
    cache.symlink_to(elsewhere)
    assert _files(pack(cache)) == {}


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b"a" * 200, "é".encode()])
def test_names_that_are_not_text_are_kept(tmp_path, name):
    cache = _cache(tmp_path, {os.fsdecode(name): b"code"})
    packed = relocate(pack(cache), "/elsewhere")
    assert _files(packed) == {os.fsdecode(name): b"code"}
    _unpack(packed, tmp_path / "new")
    assert os.listdir(os.fsencode(tmp_path / "new")) == [name]


def test_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_cache, "_MAX_BYTES", 1000)
    monkeypatch.setattr(compiled_cache, "_MAX_FILES", 3)
    fits = _cache(tmp_path / "a", {"1": b"x" * 500, "2": b"x" * 500, "3": b""})
    assert sum(map(len, _files(pack(fits)).values())) == 1000
    for name, files in (
        ("b", {"1": b"x" * 500, "2": b"x" * 501}),
        ("c", {str(number): b"" for number in range(4)}),
    ):
        with pytest.raises(ValueError, match="more than 1000 bytes or 3 files"):
            pack(_cache(tmp_path / name, files))


def test_a_sparse_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail(f"{self} was read"))
    cache = _cache(tmp_path, {"huge": b""})
    os.truncate(cache / "huge", 1 << 40)
    with pytest.raises(ValueError, match="more than"):
        pack(cache)


def test_it_is_handed_over_as_a_memory_file_from_its_beginning():
    for data in (b"", b"x" * 70_000):
        fd = as_file(data)
        with os.fdopen(fd, "rb") as file:
            assert os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:")
            assert not os.get_inheritable(fd)
            assert file.read() == data
