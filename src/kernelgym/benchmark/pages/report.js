// What a report's page can do beside being read: sort tables, filter the wall, read curves.
(function () {
  "use strict";
  function number(cell) {
    var told = cell.getAttribute("data-value") || cell.textContent;
    var value = parseFloat(told.replace(/[, ]/g, ""));
    return isNaN(value) ? null : value;
  }
  document.querySelectorAll("table.sortable thead th").forEach(function (head) {
    head.setAttribute("data-sort", "");
    head.setAttribute("tabindex", "0");
    function sort() {
      var table = head.closest("table"), body = table.tBodies[0], place = head.cellIndex;
      var down = head.getAttribute("aria-sort") !== "descending";
      table.querySelectorAll("th").forEach(function (th) { th.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      Array.from(body.rows).sort(function (one, other) {
        var a = one.cells[place], b = other.cells[place], x = number(a), y = number(b), found;
        if (x !== null && y !== null) { found = x - y; }
        else if (x === null && y === null) { found = a.textContent.localeCompare(b.textContent); }
        else { return x === null ? 1 : -1; }
        return down ? -found : found;
      }).forEach(function (row) { body.appendChild(row); });
    }
    head.addEventListener("click", sort);
    head.addEventListener("keydown", function (event) { if (event.key === "Enter") { sort(); } });
  });
  document.querySelectorAll(".tools[data-wall]").forEach(function (tools) {
    tools.hidden = false;
    var wall = document.getElementById(tools.getAttribute("data-wall"));
    function show() {
      var words = tools.querySelector("input").value.toLowerCase();
      var state = tools.querySelector("select").value;
      wall.querySelectorAll(".tile").forEach(function (tile) {
        var there = tile.getAttribute("data-states").split(" ");
        var off = (state && there.indexOf(state) < 0) ||
          tile.getAttribute("data-name").toLowerCase().indexOf(words) < 0;
        tile.classList.toggle("off", Boolean(off));
      });
    }
    tools.addEventListener("input", show);
  });
  function open(name) {
    var found = name && document.getElementById(decodeURIComponent(name.slice(1)));
    if (found && found.tagName === "DETAILS") { found.open = true; found.scrollIntoView(); }
  }
  window.addEventListener("hashchange", function () { open(location.hash); });
  open(location.hash);
  document.querySelectorAll("figure[data-curves]").forEach(function (figure) {
    var curves = JSON.parse(figure.getAttribute("data-curves"));
    var svg = figure.querySelector("svg"), told = figure.querySelector(".reading");
    svg.addEventListener("pointermove", function (event) {
      var box = svg.getBoundingClientRect();
      var x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      var best = 0;
      curves.x.forEach(function (place, n) {
        if (Math.abs(place - x) < Math.abs(curves.x[best] - x)) { best = n; }
      });
      told.textContent = "p = " + curves.p[best] + ": " + curves.series.map(function (each) {
        return each.name + " " + (100 * each.values[best]).toFixed(1) + " %";
      }).join(", ");
    });
  });
})();
