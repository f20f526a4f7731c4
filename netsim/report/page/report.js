(function () {
  "use strict";
  var sheet = JSON.parse(document.getElementById("sheet").textContent);
  var columns = sheet.columns, PAGE = 100, page = 0, sorted = -1, upward = true;
  var head = document.querySelector("#rows thead"), body = document.querySelector("#rows tbody");
  var search = document.getElementById("search"), sizes = document.getElementById("size");
  var filters = [], shown = [], headers = [];
  var sizeColumn = columns.findIndex(function (c) { return c.kind === "size"; });

  function digits(value, most) { return String(Number(value.toPrecision(most))); }
  function scaled(value, units) {
    for (var i = 0; i < units.length; i++) {
      if (Math.abs(value) >= units[i][0]) { return digits(value / units[i][0], 4) + " " + units[i][1]; }
    }
    return digits(value, 4) + " " + units[units.length - 1][1];
  }
  var show = {
    text: function (v) { return v; },
    size: function (v) { return scaled(v, [[1073741824, "GiB"], [1048576, "MiB"], [1024, "KiB"], [1, "B"]]); },
    time: function (v) { return scaled(v, [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]]); },
    number: function (v) { return digits(v, 4); },
    ratio: function (v) { return v.toFixed(2) + " ×"; },
    money: function (v) { return Math.round(v).toLocaleString("en"); }
  };
  function value(column, row) {
    return column.kind === "text" ? column.texts[column.values[row]] : column.values[row];
  }
  function text(column, row) {
    var v = value(column, row);
    var sign = column.kind === "time" && sheet.doubtful.indexOf(row) >= 0 ? "~" : "";
    return v === null || v === "" ? "" : sign + show[column.kind](v);
  }
  function cell(name, content, className) {
    var made = document.createElement(name);
    made.textContent = content;
    if (className) { made.className = className; }
    return made;
  }
  function number(column) { return column.kind !== "text"; }

  function build() {
    var titles = document.createElement("tr"), wishes = document.createElement("tr");
    columns.forEach(function (column, index) {
      var th = document.createElement("th"), button = document.createElement("button");
      th.scope = "col";
      th.setAttribute("aria-sort", "none");
      if (number(column)) { th.className = "n"; }
      button.type = "button";
      button.textContent = column.title;
      button.addEventListener("click", function () {
        upward = sorted === index ? !upward : true;
        sorted = index;
        refresh();
      });
      th.appendChild(button);
      titles.appendChild(th);
      headers.push(th);
      var wish = document.createElement("th"), input = document.createElement("input");
      input.setAttribute("aria-label", "Filter " + column.title);
      input.placeholder = number(column) ? "e.g. <100" : "filter";
      input.addEventListener("input", refresh);
      filters.push(input);
      wish.appendChild(input);
      wishes.appendChild(wish);
    });
    head.appendChild(titles);
    head.appendChild(wishes);
    if (sizeColumn >= 0) {
      var known = Array.from(new Set(columns[sizeColumn].values.filter(function (v) { return v !== null; })));
      known.sort(function (a, b) { return a - b; });
      if (known.length > 1) {
        document.getElementById("size-label").hidden = false;
        sizes.appendChild(new Option("all", ""));
        known.forEach(function (v) { sizes.appendChild(new Option(show.size(v), String(v))); });
        sizes.value = String(known[known.length - 1]);
        sizes.addEventListener("change", refresh);
      }
    }
    search.addEventListener("input", refresh);
    document.getElementById("back").addEventListener("click", function () { page--; draw(); });
    document.getElementById("on").addEventListener("click", function () { page++; draw(); });
  }
  function wanted(column, wish) {
    var compared = /^\s*(<=|>=|<|>|=)\s*(-?[\d.]+(?:e-?\d+)?)\s*$/i.exec(wish);
    if (compared && number(column)) {
      var bound = Number(compared[2]), sign = compared[1];
      return function (row) {
        var v = value(column, row);
        if (v === null) { return false; }
        return sign === "<" ? v < bound : sign === ">" ? v > bound : sign === "<=" ? v <= bound
          : sign === ">=" ? v >= bound : v === bound;
      };
    }
    var low = wish.toLowerCase();
    return function (row) { return text(column, row).toLowerCase().indexOf(low) >= 0; };
  }
  function refresh() {
    var tests = [], any = search.value.trim().toLowerCase();
    columns.forEach(function (column, index) {
      var wish = filters[index].value.trim();
      if (wish) { tests.push(wanted(column, wish)); }
    });
    if (sizeColumn >= 0 && sizes.value) {
      var size = Number(sizes.value);
      tests.push(function (row) { return columns[sizeColumn].values[row] === size; });
    }
    if (any) {
      tests.push(function (row) {
        return columns.some(function (c) { return text(c, row).toLowerCase().indexOf(any) >= 0; });
      });
    }
    shown = [];
    for (var row = 0; row < sheet.rows; row++) {
      if (tests.every(function (test) { return test(row); })) { shown.push(row); }
    }
    if (sorted >= 0) {
      var by = columns[sorted], sign = upward ? 1 : -1;
      shown.sort(function (a, b) {
        var x = value(by, a), y = value(by, b);
        if (x === null || y === null) { return x === y ? a - b : x === null ? 1 : -1; }
        if (typeof x === "string") { return sign * x.localeCompare(y, "en", { numeric: true }) || a - b; }
        return sign * (x - y) || a - b;
      });
    }
    page = 0;
    draw();
  }
  function draw() {
    var pages = Math.max(1, Math.ceil(shown.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    var rows = shown.slice(page * PAGE, (page + 1) * PAGE).map(function (row) {
      var tr = document.createElement("tr");
      columns.forEach(function (c) { tr.appendChild(cell("td", text(c, row), number(c) ? "n" : "")); });
      return tr;
    });
    body.replaceChildren.apply(body, rows);
    headers.forEach(function (th, index) {
      th.setAttribute("aria-sort", index !== sorted ? "none" : upward ? "ascending" : "descending");
    });
    document.getElementById("count").textContent = shown.length + " of " + sheet.rows + " rows";
    document.getElementById("page").textContent = "page " + (page + 1) + " of " + pages;
    document.getElementById("back").disabled = page === 0;
    document.getElementById("on").disabled = page >= pages - 1;
  }
  build();
  refresh();
})();
