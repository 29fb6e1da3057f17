#include "anatomy/page.h"

#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

constexpr const char* kStyle = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #667; --line: #d8dbe2; --page: #fff; --card: #f6f7f9;
  --c0: #3b6fb6; --c1: #8a5bb5; --c2: #d0722c; --c3: #3a9d6b; --c4: #b9b13c; --c5: #4fa8b8; --c6: #b0475a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --soft: #9aa0ab; --line: #383d47; --page: #15171b; --card: #1e2127;
    --c0: #6b9be0; --c1: #b08be0; --c2: #e89a5c; --c3: #62c493; --c4: #d8d06a; --c5: #7ccbd9; --c6: #e07f90; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 20px 16px 60px; }
h1 { font-size: 1.5rem; margin: 0 0 4px; } h2 { font-size: 1.1rem; margin: 34px 0 8px; }
p { margin: 4px 0 10px; color: var(--soft); overflow-wrap: anywhere; }
.figures { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; }
.figure { background: var(--card); border-radius: 8px; padding: 10px 14px; min-width: 130px; flex: 1; }
.figure b { display: block; font-size: 1.25rem; } .figure span { color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; }
svg { width: 100%; min-width: 560px; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .85rem; margin: 6px 0; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; }
.bar { display: flex; height: 22px; border-radius: 4px; overflow: hidden; min-width: 120px; }
details > summary { cursor: pointer; padding: 2px 0; list-style: none; }
details > summary::-webkit-details-marker { display: none; }
details > summary .name::before { content: "\25b8"; display: inline-block; width: 1em; } details[open] > summary .name::before { content: "\25be"; } details details, details .leaf { margin-left: 18px; }
.row { display: flex; gap: 10px; align-items: center; justify-content: space-between; }
.row .name { overflow: hidden; text-overflow: ellipsis; } .row .size { color: var(--soft); white-space: nowrap; }
</style>
)html";

constexpr const char* kBody = R"html(</head>
<body><main id="page"></main>
<script type="application/json" id="report">
)html";

// Functions with which the scripts of all pages draw.
constexpr const char* kTools = R"html(</script>
<script>
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const page = document.getElementById("page");
const titles = { model_weights: "model weights", optimizer_states: "optimizer states", gradients: "gradients",
  activations: "forward activations", temporary_buffers: "temporary buffers", functionality: "batch, caches",
  unknown: "unknown", tensor_contraction: "tensor contractions", statistical_normalization: "statistical normalizations",
  element_wise: "element-wise", none: "views, allocations" };
const title = name => titles[name] || name;
const colour = i => `var(--c${i})`;
const units = (value, step, names) => { let i = 0; while (value >= step && i < names.length - 1) { value /= step; ++i; }
  return (value >= 100 || i === 0 ? Math.round(value) : value.toPrecision(3)) + " " + names[i]; };
const bytes = value => units(value, 1000, ["B", "kB", "MB", "GB", "TB"]);
const flop = value => units(value, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]);
const share = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(part / whole < 0.001 ? 3 : 1) + " %" : "–";
const sum = list => list.reduce((a, b) => a + b, 0);

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "polyline"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of children) node.append(child);
  return node;
}
function section(heading, text, ...children) {
  page.append(element("h2", {}, heading));
  if (text) page.append(element("p", {}, text));
  page.append(...children);
}
function table(header, rows) {
  const body = element("table", {}, element("tr", {}, ...header.map(word => element("th", {}, word))));
  for (const row of rows) body.append(element("tr", {}, ...row.map(cell => element("td", {}, cell))));
  return element("div", { class: "wide" }, body);
}
function key(names) {
  return element("div", { class: "key" }, ...names.map((name, i) =>
    element("span", {}, element("i", { style: `background:${colour(i)}` }), title(name))));
}
function bar(names, values) {
  const all = sum(values), out = element("div", { class: "bar" });
  values.forEach((value, i) => { if (value > 0)
    out.append(element("div", { style: `flex:${value / all};background:${colour(i)}`, title: `${title(names[i])}: ${bytes(value)}` })); });
  return out;
}
function heading(text, below, figures) {
  page.append(element("h1", {}, text), element("p", {}, below));
  page.append(element("div", { class: "figures" }, ...figures.map(([value, what]) =>
    element("div", { class: "figure" }, element("b", {}, value), element("span", {}, what)))));
}
function whatIf(now) {
  if (!(report.alternatives || []).length) return;
  section("What if", "Predictions for the same step with one setting changed.", table(["change", "needed", "difference"], report.alternatives.map(each =>
    each.stopped ? [each.name, "unknown", each.stopped]
      : [each.name, bytes(each.needed), (each.needed < now ? "−" : each.needed > now ? "+" : "") + bytes(Math.abs(each.needed - now))])));
}

)html";

constexpr const char* kTail =
    R"html(document.documentElement.dataset.fits = String(document.documentElement.scrollWidth <= window.innerWidth);
</script>
</body>
</html>
)html";

// Escapes every "<": names in a report may contain "</script", which would end the element.
std::string escape_for_script(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      out += "\\u003c";
    } else {
      out += json[i];
    }
  }
  return out;
}

}  // namespace

std::string render_page(const std::string& title, const std::string& json, const char* script) {
  return str(kStyle, "<title>", title, "</title>\n", kBody, escape_for_script(json), kTools, script,
             kTail);
}

}  // namespace hasten::anatomy
