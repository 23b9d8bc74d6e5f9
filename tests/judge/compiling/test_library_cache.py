"""The folder of libraries stays under its size and takes nothing from anybody who uses it."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from kernelgym.judge.compiling import library_cache
from kernelgym.judge.compiling.library_cache import BuiltLibrary, LibraryCache

KIB = 1 << 10


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(library_cache, "_IN_USE_S", 0.0)
    return LibraryCache(tmp_path / "cache", limit_bytes=10 * KIB)


def _file(cache, key, tmp_path, size=2 * KIB):
    path = tmp_path / f"new-{key}-{threading.get_ident()}"
    path.write_bytes(b"x" * size)
    return cache.file(BuiltLibrary(str(path), "module", ""), key)


def _age(cache, key, seconds):
    os.utime(cache.folder / key, (time.time() - seconds,) * 2)


def _keys(cache):
    return {path.name for path in cache.folder.iterdir() if not path.name.startswith(".")}


def test_what_was_used_longest_ago_goes_first(cache, tmp_path):
    for number in range(4):
        _file(cache, f"k{number}", tmp_path)
        _age(cache, f"k{number}", 100 - number)
    assert cache.find("k0") is not None  # so k1 is the oldest now
    assert _keys(cache) == {"k0", "k1", "k2", "k3"}
    _file(cache, "k4", tmp_path)
    assert _keys(cache) == {"k0", "k3", "k4"}
    assert cache.find("k1") is None and cache.find("k0").path.endswith("extension.so")


def test_what_is_in_use_stays(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(library_cache, "_IN_USE_S", 60.0)
    for number in range(9):
        _file(cache, f"k{number}", tmp_path)
    assert len(_keys(cache)) == 9
    _age(cache, "k3", 61.0)
    cache.cut_back()
    assert len(_keys(cache)) == 8 and cache.find("k3") is None


def test_the_shared_object_outlives_a_build(cache, tmp_path):
    source = tmp_path / "binding.o"
    source.write_bytes(b"x" * 20 * KIB)
    cache.file_object(source, "binding.o")
    _file(cache, "k0", tmp_path)
    assert _keys(cache) == {"binding.o"}
    _age(cache, "binding.o", 2 * 86400.0)
    cache.cut_back()
    assert _keys(cache) == set() and cache.find_object("binding.o") is None


def test_what_a_lost_worker_left_is_removed(cache, tmp_path):
    for name, seconds in (("staging-old", 4000.0), ("staging-new", 0.0)):
        (cache.folder / name).mkdir()
        _age(cache, name, seconds)
    cache.cut_back()
    assert _keys(cache) == {"staging-new"}


def test_what_is_found_is_there_whoever_cuts_back(tmp_path, monkeypatch):
    monkeypatch.setattr(library_cache, "_IN_USE_S", 30.0)
    folder, failures, found = tmp_path / "cache", [], []
    keys = [f"k{number}" for number in range(40)]

    def look(start):
        cache = LibraryCache(folder, limit_bytes=10 * KIB)  # a worker each: only the folder is one
        start.wait()
        for key in reversed(keys[20:]):  # the last to go come first
            if (built := cache.find(key)) is not None:
                found.append(key)
                try:
                    with open(built.path, "rb") as file:
                        assert len(file.read()) == 2 * KIB
                except BaseException as error:
                    failures.append(error)

    def cut(start):
        cache = LibraryCache(folder, limit_bytes=10 * KIB)
        start.wait()
        cache.cut_back()

    for _ in range(5):
        roomy = LibraryCache(folder)
        for age, key in enumerate(keys):
            _file(roomy, key, tmp_path)
            _age(roomy, key, 1000.0 - age)
        start = threading.Barrier(4)
        threads = [threading.Thread(target=w, args=(start,)) for w in (look, cut, look, cut)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert set(found) <= _keys(roomy) and _keys(roomy).isdisjoint(keys[:20])
        found.clear()


def test_what_was_built_for_a_kernel_is_found_by_it(cache, tmp_path):
    first, second = (_file(cache, key, tmp_path, size=8) for key in ("k1", "k2"))
    cache.note("a" * 16, [Path(first.path), Path(second.path)], tmp_path)
    assert cache.built_for("a" * 16) == {"extension.so": b"x" * 8, "extension_2.so": b"x" * 8}
    assert cache.built_for("b" * 16) == {}
    cache.note("a" * 16, [Path(second.path)], tmp_path)  # as judged last
    assert list(cache.built_for("a" * 16)) == ["extension.so"]
    shutil.rmtree(Path(second.path).parent)
    assert cache.built_for("a" * 16) == {}
