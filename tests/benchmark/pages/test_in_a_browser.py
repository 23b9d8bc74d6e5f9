"""The page in a headless Chromium: no complaint on its console, and what the script adds works.

Run by ``make test-report``. A copy of the page gets one more inline script, which uses the page as
a reader would and writes what it saw into the document; the browser prints the document.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from kernelgym.benchmark import report
from support.benchmark_runs import eval_run

BROWSER = os.environ.get("CHROMIUM", "chromium")
pytestmark = pytest.mark.browser

USE = """
<script>
window.addEventListener("load", function () {
  var told = {};
  var tools = document.querySelector(".tools[data-wall]");
  function seen() {
    return Array.from(document.querySelectorAll(".tile"))
      .filter(function (tile) { return getComputedStyle(tile).display !== "none"; })
      .map(function (tile) { return tile.getAttribute("data-name"); });
  }
  told.shown = !tools.hidden;
  told.all = seen();
  tools.querySelector("input").value = "b";
  tools.dispatchEvent(new Event("input"));
  told.named = seen();
  tools.querySelector("input").value = "";
  tools.querySelector("select").value = "wrong";
  tools.dispatchEvent(new Event("input"));
  told.wrong = seen();
  var table = Array.from(document.querySelectorAll("table.sortable"))
    .find(function (each) { return /Fastest kernels/.test(each.caption.textContent); });
  function speeds() {
    return Array.from(table.tBodies[0].rows).map(function (row) {
      return parseFloat(row.cells[2].textContent);
    });
  }
  table.querySelectorAll("th")[2].click();
  told.down = speeds();
  table.querySelectorAll("th")[2].click();
  told.up = speeds();
  var figure = document.querySelector("figure[data-curves]"), box = figure
    .querySelector("svg").getBoundingClientRect();
  figure.querySelector("svg").dispatchEvent(new PointerEvent("pointermove", {
    clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true
  }));
  told.reading = figure.querySelector(".reading").textContent;
  var problem = document.querySelector("details.problem");
  location.hash = "#" + problem.id;
  setTimeout(function () {
    told.opened = problem.open;
    told.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    var out = document.createElement("pre");
    out.id = "told";
    out.textContent = JSON.stringify(told);
    document.body.appendChild(out);
  }, 50);
});
</script></body>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    if shutil.which(BROWSER) is None:
        # `make test-report` asks for these tests alone: without a browser it must not pass.
        asked = request.config.option.markexpr == "browser"
        end = pytest.fail if asked else pytest.skip
        end(f"there is no {BROWSER}; install Chromium, or name one in CHROMIUM")
    folder = tmp_path_factory.mktemp("browser")
    run = eval_run(folder / "run", {"A": "2 1", "B": "wr ww", "C": "5 w4"})
    report(run, html=folder / "page.html")
    return folder / "page.html"


def visit(page: Path, width: int) -> tuple[str, str]:
    """Return the document as the browser prints it, and what stood on the console."""
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=3000"]
    command += [f"--window-size={width},900", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(console)


@pytest.mark.parametrize("width", [1280, 500])
def test_page_works_in_a_browser(page: Path, width: int) -> None:
    used = page.with_name(f"used_{width}.html")
    used.write_text(page.read_text().replace("</body>", USE))
    document, console = visit(used, width)
    assert not console, "the page complains, or tried to load something"
    told = json.loads(unescape(re.findall(r'<pre id="told">(.*?)</pre>', document)[0]))
    assert told["shown"] and len(told["all"]) == 3
    assert told["named"] == ["Test/L1/B B"] and told["wrong"] == ["Test/L1/B B"]
    assert told["down"] == sorted(told["down"], reverse=True) and told["up"] == sorted(told["up"])
    assert len(set(told["down"])) > 1
    assert re.match(r"p = [\d.]+: run [\d.]+ %, run \(certain\) [\d.]+ %", told["reading"])
    assert told["opened"] and told["wide"] <= 0, "it opens, and nothing sticks out sideways"


def test_page_is_readable_as_it_is(page: Path) -> None:
    document, console = visit(page, 1280)
    assert not console and "solved 3 of 3 problems" in document
