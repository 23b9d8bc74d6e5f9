"""Makes `triton.autotune` take every config in turn, or the first that runs, without a device.

Triton's autotuner times every config with the device driver's benchmark, which an interpreter has
not. Times of interpreted kernels say nothing about a GPU, and any config that pruning leaves may be
the fastest there. So the first config that runs is taken, and the next launch with the same key
takes the next one if `ConfigTurns.on` is set. The first runs once as if it were measured, with
every hook, so that a kernel that adds to its output without `reset_to_zero`, or works in place
without `restore_value`, is wrong here as it is on a GPU. As on a GPU, a config is passed over if
one of its `tl.static_assert` fails.

Loaded by path in the untrusted process: standard library and triton only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_UNMEASURED = [float("inf")] * 3  # how Triton says that a config cannot run


class ConfigTurns:
    """Replacement for the measurements of Triton's autotuner: configs take turns."""

    def __init__(self) -> None:
        from triton.runtime.autotuner import Autotuner

        self.on = False
        """Whether launches take all configs in turn, not the first one alone."""
        self.is_skipping: Callable[[], bool] = lambda: False
        """Function that returns True while launches are left out: they take no turn."""
        self._chosen: list[_Chosen] = []
        bench, run = Autotuner._bench, Autotuner.run

        def measured_once(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
            # Each launch makes new `nargs`: the same object means that an earlier config ran.
            if tuner.cache.measured is tuner.nargs:
                tuner.cache.add(config)
                return _UNMEASURED
            try:
                times = bench(tuner, *args, config=config, **meta)
            except Exception as error:
                if _static_assert_failed(error):
                    return _UNMEASURED
                raise
            tuner.cache.measured = tuner.nargs
            tuner.cache.add(config)
            return times

        def run_in_turn(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if type(tuner.cache) is not _Chosen:
                tuner.cache = _Chosen(self)
                self._chosen.append(tuner.cache)
            while True:
                try:
                    return run(tuner, *args, **kwargs)
                except Exception as error:
                    if not (_static_assert_failed(error) and tuner.cache.drop()):
                        raise

        Autotuner._bench, Autotuner.run = measured_once, run_in_turn
        # On the class: a benchmark that the kernel passes as `do_bench` needs a device, too.
        Autotuner.do_bench = property(lambda self: _run_once)

    def untried(self) -> int:
        """Return the largest number of autotuned configs of one kernel that no launch has tried."""
        return max((chosen.untried() for chosen in self._chosen), default=0) if self.on else 0


class _Chosen(dict[Any, Any]):
    """Cache of an autotuner's chosen configs, which returns another one at every look-up.

    The autotuner asks once in a launch whether it knows a key, and reads the config afterwards.
    """

    def __init__(self, turns: ConfigTurns) -> None:
        super().__init__()
        self._turns = turns
        self._asked: Any = None
        self._configs: dict[Any, list[Any]] = {}  # by key; the first is the next to be taken
        self._left: dict[Any, int] = {}  # by key: how many of them no launch has taken
        self.measured: Any = None
        """Arguments of the launch in which a config was measured."""

    def __contains__(self, key: object) -> bool:
        self._asked = key
        if not super().__contains__(key):
            self._configs[key], self._left[key] = [], -1  # the launch that measures takes one
            return False
        if self._turns.on and not self._turns.is_skipping():
            self._take()
        return True

    def _take(self) -> None:
        key, configs = self._asked, self._configs[self._asked]
        configs.append(configs.pop(0))
        self[key] = configs[0]
        self._left[key] = max(0, self._left[key] - 1)

    def add(self, config: Any) -> None:
        """Add a config that may run to those of the key that was asked for last."""
        self._configs[self._asked].append(config)
        self._left[self._asked] += 1

    def drop(self) -> bool:
        """Leave the config out that was returned last; return False if it was the only one."""
        configs = self._configs.get(self._asked, [])
        if not self._turns.on or len(configs) < 2:
            return False
        configs.pop(0)
        configs.insert(0, configs.pop())  # as before this launch, whose next turn follows
        return True

    def untried(self) -> int:
        """Return the largest number of configs of one key that no launch has tried."""
        return max(self._left.values(), default=0)


turns: list[ConfigTurns] = []
"""The process's only `ConfigTurns`, where kernels are interpreted."""


def install() -> ConfigTurns:
    """Replace the autotuner's measurements in this process; return the chooser of configs."""
    turns.append(ConfigTurns())
    return turns[0]


def _run_once(kernel_call: Callable[[], Any], quantiles: Any = None) -> list[float]:
    kernel_call()
    return [0.0, 0.0, 0.0]


def _static_assert_failed(error: BaseException) -> bool:
    """Return True if `tl.static_assert` raised the error, however deeply nested the helper."""
    while error.__cause__ is not None:
        error = error.__cause__
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    raised_in = "" if place is None else place.tb_frame.f_code.co_name
    return isinstance(error, AssertionError) and "static_assert" in raised_in
