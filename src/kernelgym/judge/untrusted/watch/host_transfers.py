"""Counts values that move between torch and the rest of Python: NumPy, lists, buffers, ctypes.

Outside torch a kernel can compute without any torch operator. Counted, in bytes:

- tensors converted to NumPy, DLPack, lists or serialised bytes;
- tensors made from such values, or computed element by element by Python functions;
- memory that was shared with NumPy or a file before the call and that changed in the call;
- addresses turned into ctypes arrays.

Noted by name, at any time after `begin`:

- functions of numeric libraries (BLAS and the like) that the process looks up;
- steps that make all memory readable from then on: the process's memory opened as a file, a ctypes
  object laid over an address, functions that a kernel looks up in libraries itself.

`computing` names what an extension is handed that could compute in its place.

On the CPU `host_memory.py` finds values that come back in any other way. What compiled code does
with an address is not seen.

Loaded by path in the untrusted process: standard library and torch only. No security boundary.
"""

from __future__ import annotations

import collections
import ctypes
import enum
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _device

# A kernel's `device` may say that tensors of the CPU lie on a GPU (`triton/cuda_on_cpu.py`).
_device_of = torch._C.TensorBase.device.__get__

# Torch keeps the set of functions that a device's context (``with torch.device("meta")``) changes
# when it is first asked for. Asked after they are replaced, it would hold the replacements, and
# their originals would make tensors on the CPU, as transformers then loads models without buffers.
_device._device_constructors()

_WATCHED = (torch.Tensor, torch.nn.Module, torch.Stream, torch.Event, enum.Enum)
"""Classes whose instances' work is counted, or that have none."""
_MANY: Any = (list, tuple, dict, set, frozenset, collections.deque, type({}.values()))
_NUMPY: Any = sys.modules.get("numpy")  # torch has imported it, if it is there
_DATA = (
    *(type(None), int, float, complex, str, bytes, bytearray, slice, range, type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator),
    *((_NUMPY.generic,) if _NUMPY is not None else ()),
    *_MANY,
)
_METHODS = (staticmethod, classmethod, property)
_MADE_IN_PYTHON = 1 << 9
"""Flag of classes that a class statement made; C made the others (`Py_TPFLAGS_HEAPTYPE`)."""
_MOST_HANDED = 100_000  # objects in objects

_OUT = ("numpy", "tolist", "__dlpack__", "__reduce_ex__", "apply_", "map_", "map2_")
_IN = ("from_numpy", "frombuffer", "from_dlpack", "from_file", "tensor", "as_tensor", "asarray")
_SHARING = frozenset(
    ("numpy", "__dlpack__", "from_numpy", "frombuffer", "from_file", "as_tensor", "asarray")
)
_OF_STORAGES = (
    *("tolist", "__getitem__", "__setitem__", "_write_file", "_set_from_file"),
    *("_share_fd_cpu_", "_share_filename_cpu_"),
)
_NEW_STORAGES = ("from_buffer", "from_file", "_new_with_file", "_new_shared_filename_cpu")
_SHARED_KEPT = 1024
_INSTALLED = (
    *(sys.prefix, sys.base_prefix, "<frozen "),
    os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))),
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),  # judge/untrusted
)
_EVERYTHING = 1 << 50
_LIBRARY = re.compile(
    rb"(cblas_|^cublas|^cudnn|^cusolver|^cufft|^mkl_|^dnnl_|^vs[A-Z]|^LAPACKE_"
    rb"|^[sdcz](gemm|gemv|symm|dot|axpy|trsm|syrk)(_|_64_|64_)?$)"
)


class HostTransfers:
    """Counts one process's transfers of values between torch and the rest of Python.

    Make it, and call `begin`, before any kernel code is loaded.

    Args:
        counts: Function that returns True while transfers count.
        fingerprint: The function of `fingerprint.py`.
    """

    def __init__(
        self, counts: Callable[[], bool], fingerprint: Callable[[torch.Tensor], Any]
    ) -> None:
        self._counts, self._fingerprint = counts, fingerprint
        self._nested = False
        self.rest()
        for name in _OUT:
            setattr(torch.Tensor, name, self._out(name, getattr(torch.Tensor, name)))
        for name in _IN:
            original = getattr(torch, name)
            setattr(torch, name, self._in(name, original))
            if scripted := torch.jit._builtins._find_builtin(original):
                torch.jit._builtins._register_builtin(getattr(torch, name), scripted)
        for module, name in ((ctypes, "memmove"), (sys.modules.get("numpy.ctypeslib"), "as_array")):
            if module is not None:
                setattr(module, name, self._raw(name, getattr(module, name)))
        for owner, name in (
            (torch.utils.dlpack, "to_dlpack"),
            (torch._C, "_to_dlpack"),
            (torch, "save"),
            *((torch.UntypedStorage, name) for name in _OF_STORAGES),
        ):
            if hasattr(owner, name):  # private: later versions may lack some
                setattr(owner, name, self._out(name, getattr(owner, name)))
        if hasattr(torch._C, "_from_dlpack"):
            torch._C._from_dlpack = self._in("_from_dlpack", torch._C._from_dlpack)
        for name in _NEW_STORAGES:
            if (make := getattr(torch.UntypedStorage, name, None)) is not None:
                setattr(torch.UntypedStorage, name, staticmethod(self._in(name, make)))
        sys.addaudithook(self._audit)

    def begin(self) -> None:
        """Begin to count transfers, and to note steps that make all memory readable."""
        self._begun = True

    def rest(self) -> None:
        """Stop counting, and forget everything that happened before a kernel is loaded."""
        self._begun = False
        self._shared: dict[int, torch.Tensor] = {}
        self._too_many = False
        self._everywhere = ""  # the way, if any, to all memory
        self.library = ""
        """The name of a numeric library's function that the process looked up."""
        self.reset()

    def reset(self) -> None:
        """Forget the transfers counted so far."""
        self.bytes = 0
        self.ways: set[str] = set()

    def add(self, size: int, way: str) -> None:
        """Count a transfer of `size` bytes."""
        if self._counts():
            self.bytes += size
            self.ways.add(way)

    def lifted(self, size: int) -> None:
        """Count the bytes of a tensor that was made from Python's values."""
        if not self._nested:
            self.add(size, "tensors of Python's values")

    def written(self, size: int) -> None:
        """Count bytes that neither torch nor a custom kernel wrote."""
        self.bytes += size
        self.ways.add("memory written behind PyTorch")

    def prints(self) -> dict[int, Any]:
        """Return fingerprints of the memory that tensors share with the rest of Python."""
        return {key: self._fingerprint(tensor) for key, tensor in self._shared.items()}

    def compare(self, before: dict[int, Any] | None, given: list[torch.Tensor]) -> None:
        """Count shared memory that changed in the call or cannot be checked.

        Args:
            before: Fingerprints from before the call.
            given: The call's inputs. They count whole if shared: their values were new in this
                call even if no fingerprint changed.
        """
        if self._too_many:
            self.bytes += _EVERYTHING
            self.ways.add("more memory shared with NumPy than is looked at")
        if self._everywhere:
            self.bytes += _EVERYTHING
            self.ways.add(self._everywhere)
        for tensor in given:
            begin = tensor.data_ptr()
            if any(begin <= key < begin + _bytes(tensor) for key in self._shared):
                self.bytes += _bytes(tensor)
                self.ways.add("inputs shared with NumPy before the call")
        for key, mark in (before or {}).items():
            shared = self._shared.get(key)
            if shared is not None and self._fingerprint(shared) != mark:
                self.bytes += _bytes(shared)
                self.ways.add("memory shared with NumPy")

    def _share(self, name: str, tensor: Any) -> None:
        """Remember memory that was shared with Python outside of calls: a call may use it later."""
        if not self._begun or self._counts() or name not in _SHARING:
            return
        if not isinstance(tensor, torch.Tensor):
            return
        if _device_of(tensor).type != "cpu":
            return
        if len(self._shared) < _SHARED_KEPT:
            self._shared[tensor.data_ptr()] = tensor.detach()
        elif tensor.data_ptr() not in self._shared:
            self._too_many = True

    def _out(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(given: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._nested:
                self.add(_bytes(given), name)
                self._share(name, given)
            return function(given, *args, **kwargs)

        return call

    def _in(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else next(iter(kwargs.values()), None)
            was, self._nested = self._nested, True  # do not count inner tensors again
            try:
                made = function(*args, **kwargs)
            finally:
                self._nested = was
            kinds = (torch.Tensor, torch.UntypedStorage)
            if not was and isinstance(made, kinds) and not _of_tensors(given):
                self.add(_bytes(made), name)
                self._share(name, made)
            return made

        return call

    def _raw(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            size = getattr(made, "nbytes", None) or (args[2] if len(args) > 2 else 0)
            self.add(int(size), f"ctypes {name}")
            return made

        return call

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._begun:
            return
        if event == "ctypes.string_at":
            self.add(args[1] if len(args) > 1 else _EVERYTHING, event)
        elif event == "ctypes.cdata":
            self._everywhere = "ctypes"
        elif event == "ctypes.dlsym":
            name = args[1] if isinstance(args[1], bytes) else str(args[1]).encode()
            if _LIBRARY.search(name):
                self.library = name.decode(errors="replace")
            elif not _asker().startswith(_INSTALLED):
                self._everywhere = f"{name[:40].decode(errors='replace')} through ctypes"
        elif event in ("open", "os.symlink", "os.link") and _names_memory(args[0]):
            self._everywhere = "the memory of its process as a file"


def _asker() -> str:
    """Return the path of the file whose code calls ctypes."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename == ctypes.__file__:
        frame = frame.f_back
    return frame.f_code.co_filename


def _names_memory(path: Any) -> bool:
    if not isinstance(path, (str, bytes)):
        return False
    text = os.fsdecode(path)
    return "mem" in (os.path.basename(text), os.path.basename(os.path.realpath(text)))


def _bytes(given: Any) -> int:
    if isinstance(given, torch.Tensor):
        return int(given.numel() * given.element_size())
    if isinstance(given, torch.UntypedStorage):
        return int(given.nbytes())
    return 0


def _of_tensors(given: Any) -> bool:
    return isinstance(given, torch.Tensor) or (
        isinstance(given, (list, tuple)) and bool(given) and isinstance(given[0], torch.Tensor)
    )


def computing(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """Yield names of objects in `value` that could compute in an extension's place.

    These are functions and objects with methods, whatever their class says; arrays, whose methods
    are NumPy's; and capsules, which may hold the address of a BLAS function. Work of tensors and
    modules is counted, and an extension's own classes are its own.

    Args:
        value: What an extension is handed.
        seen: Identities of the objects that were looked at.
    """
    kind: Any = type(value)
    seen = set() if seen is None else seen
    of_extension = "pybind11_type" in (kind.__name__, type(kind).__name__)
    if issubclass(kind, _WATCHED) or of_extension or id(value) in seen:
        return
    seen.add(id(value))
    parts, held = None, getattr(value, "__dict__", {}).values()
    if issubclass(kind, _DATA):
        items = value.values() if issubclass(kind, dict) else value
        parts = [*held, *(items if issubclass(kind, _MANY) else ())]
    elif not callable(value) and (kind.__flags__ & _MADE_IN_PYTHON or kind is SimpleNamespace):
        own = [item for each in kind.__mro__[:-1] for item in vars(each).items()]
        own = [each for name, each in own if not name.startswith("__")]
        if not any(callable(each) or isinstance(each, _METHODS) for each in own):
            slots = [each for each in own if hasattr(each, "__objclass__")]
            parts = [*held, *(getattr(value, each.__name__, None) for each in slots)]
            parts += [each for each in own if not hasattr(type(each), "__get__")]
    if parts is None or len(seen) > _MOST_HANDED:
        yield str(getattr(value, "__name__", kind.__name__))
        return
    for part in parts:
        yield from computing(part, seen)
