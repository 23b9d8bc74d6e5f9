"""Read a search space of the FAIR Benchmark Hub for Auto-Tuning into a table.

Run ``python -m benchmarks.search.hub CACHEFILE.json.gz NAME``. The file is one of the hub's
``cachefiles``, in the format of Kernel Tuner; the table is written to ``benchmarks/search/tables``.
Columns with one choice are left out. A configuration whose time is a text has failed.

The data are by Floris-Jan Willemsen, Rob V. van Nieuwpoort and Ben van Werkhoven, and others, and
under the MIT licence, which lies beside the tables.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.search.table import Table, write_table

__all__ = ["TABLES", "table_of"]

TABLES = Path(__file__).with_name("tables")
_SOURCE = (
    "from the FAIR Benchmark Hub for Auto-Tuning, doi:10.5281/zenodo.15364124, "
    "https://github.com/AutoTuningAssociation/benchmark_hub (MIT, see LICENSE.benchmark_hub)"
)


def table_of(cache: dict[str, Any], name: str, device: str = "") -> Table:
    """Return a cache file's table.

    Args:
        cache: The file's content.
        name: Name of the table.
        device: Device of the measurements, if the file does not name it.
    """
    names = [key for key in cache["tune_params_keys"] if len(cache["tune_params"][key]) > 1]
    columns = {key: tuple(map(str, cache["tune_params"][key])) for key in names}
    times = {
        tuple(str(row[key]) for key in names): float(row["time"])
        if isinstance(row["time"], int | float)
        else None
        for row in cache["cache"].values()
    }
    what = f"{cache['kernel_name']} on {cache['device_name'] or device}, times in ms"
    return Table(name, columns, times, (_SOURCE, what))


def main() -> None:
    """Write a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="a cache file, compressed")
    parser.add_argument("name", help="of the table, such as convolution_A100")
    parser.add_argument("--device", default="", help="what was measured on")
    given = parser.parse_args()
    cache = json.loads(gzip.decompress(given.file.read_bytes()))
    path = TABLES / f"{given.name}.csv"
    write_table(table_of(cache, given.name, given.device), path)
    print(path)


if __name__ == "__main__":
    main()
