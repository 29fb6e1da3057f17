// The report as one page that needs nothing else: the JSON inside it, drawn by the script below it.
#include "hasten/anatomy/report.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

constexpr const char* kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Training anatomy</title>
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
p { margin: 4px 0 10px; color: var(--soft); }
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
</head>
<body><main id="page"></main>
<script type="application/json" id="report">
)html";

constexpr const char* kScript = R"html(</script>
<script>
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const memory = report.memory, page = document.getElementById("page");
const components = Object.keys(memory.at_peak);
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
function bar(values) {
  const all = sum(values), out = element("div", { class: "bar" });
  values.forEach((value, i) => { if (value > 0)
    out.append(element("div", { style: `flex:${value / all};background:${colour(i)}`, title: `${title(components[i])}: ${bytes(value)}` })); });
  return out;
}

function summary() {
  page.append(element("h1", {}, "Training anatomy"));
  page.append(element("p", {}, `${report.dry ? "Predicted" : "Measured"} on ${memory.gpu && memory.gpu.title || report.device}, ${report.steps} step${report.steps === 1 ? "" : "s"}.`));
  const figures = [[bytes(memory.peak), "memory at the peak"], [memory.parameters.toLocaleString("en"), "parameters"],
    [memory.parameters ? (memory.peak / memory.parameters).toFixed(2) + " B" : "–", "a parameter, in all"]];
  if (!report.dry && report.seconds > 0) {
    figures.push([(report.samples / report.seconds).toLocaleString("en", { maximumSignificantDigits: 3 }), "samples a second"]);
    if (report.tokens) figures.push([Math.round(report.tokens / report.seconds).toLocaleString("en"), "tokens a second"]);
  }
  if (report.model_flops_utilization) figures.push([share(report.model_flops_utilization, 1), "of the roof (MFU)"]);
  if (report.dry && report.least_step_seconds) figures.push([(1000 * report.least_step_seconds).toPrecision(3) + " ms", "a step at least, at the GPU's roofs"]);
  if (memory.gpu) figures.push([bytes(memory.gpu.reserved + memory.gpu.context), memory.gpu.capacity ? `of the GPU's ${bytes(memory.gpu.capacity)}` : "of the GPU"]);
  page.append(element("div", { class: "figures" }, ...figures.map(([value, what]) =>
    element("div", { class: "figure" }, element("b", {}, value), element("span", {}, what)))));
}

function atThePeak() {
  const values = components.map(name => memory.at_peak[name]);
  const where = [memory.peak_operation, memory.peak_module].filter(word => word).join(" of ");
  section("Memory at the peak", `It came in the ${memory.peak_phase} ${memory.peak_phase === "optimizer" ? "step" : "pass"}${where ? ", in " + where : ""}.`,
    bar(values), key(components), table(["component", "bytes", "share", "a parameter"], components.map((name, i) =>
      [title(name), values[i].toLocaleString("en"), share(values[i], memory.peak),
        i < 3 && memory.parameters ? (values[i] / memory.parameters).toFixed(2) + " B" : ""])));
}

function onTheGpu() {
  const gpu = memory.gpu;
  if (!gpu) return;
  const needed = gpu.reserved + gpu.context;
  const parts = [["tensors at the peak", memory.peak], ["held by the allocator then, unused", gpu.reserved_at_peak - memory.peak],
    ["held at other times, beyond that", gpu.reserved - gpu.reserved_at_peak], ["context, kernels, libraries", gpu.context], ["in all", needed]];
  const verdict = !gpu.capacity ? "" : gpu.missing ? `It does not fit the ${gpu.title}: ${bytes(gpu.missing)} are missing.`
    : `It fits the ${gpu.title}: ${bytes(gpu.capacity - needed)} are left.`;
  section("Memory of the GPU", verdict, table(["", "bytes", "share"], parts.map(([name, value]) => [name, value.toLocaleString("en"), share(value, needed)])));
}

function overTime() {
  const points = memory.timeline || [];
  if (points.length < 2) return;
  const width = 1000, height = 320, left = 70, bottom = 24, most = memory.peak;
  const step = report.dry;  // a prediction has an order, but no times
  const end = step ? points.length - 1 : points[points.length - 1].seconds || 1;
  const x = i => left + (width - left) * (step ? i : points[i].seconds) / end;
  const y = value => (height - bottom) * (1 - value / most);
  const chart = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "memory over time by component" });
  const base = points.map(() => 0);
  components.forEach((name, c) => {
    let up = "", down = "";
    points.forEach((point, i) => {
      const lower = base[i], upper = lower + point.bytes[c];
      up += `${i ? "L" : "M"}${x(i).toFixed(1)},${y(upper).toFixed(1)}`;
      down = `L${x(i).toFixed(1)},${y(lower).toFixed(1)}` + down;
      base[i] = upper;
    });
    chart.append(element("path", { d: up + down + "Z", fill: colour(c) }));
  });
  for (let i = 0; i <= 4; ++i) {
    const value = most * i / 4;
    chart.append(element("line", { x1: left, x2: width, y1: y(value), y2: y(value), stroke: "var(--line)", "stroke-width": 1 }));
    chart.append(element("text", { x: left - 6, y: Math.max(12, y(value) + 4), "text-anchor": "end" }, bytes(value)));
  }
  chart.append(element("text", { x: left, y: height - 6 }, step ? "first allocation" : "0 s"));
  chart.append(element("text", { x: width, y: height - 6, "text-anchor": "end" }, step ? "last" : end.toPrecision(3) + " s"));
  section("Memory over time", "Every allocation, stacked by what it turned out to be for.", element("div", { class: "wide" }, chart), key(components));
}

function operations() {
  const rows = (record, all) => Object.entries(record).map(([name, each]) => {
    const traffic = each.bytes_read + each.bytes_written;
    const cells = [title(name), each.count.toLocaleString("en"), flop(each.flops), share(each.flops, all.flops),
      bytes(each.bytes_read), bytes(each.bytes_written), traffic ? (each.flops / traffic).toFixed(2) : "–"];
    return report.dry ? cells : [...cells, (1000 * each.seconds).toFixed(1) + " ms", share(each.seconds, all.seconds)];
  });
  const header = first => [first, "count", "computed", "share", "read", "written", "FLOP a byte", ...(report.dry ? [] : ["time", "share"])];
  const groups = Object.values(report.groups);
  if (!sum(groups.map(each => each.count))) return;
  const all = { flops: sum(groups.map(each => each.flops)), seconds: sum(groups.map(each => each.seconds)) };
  const forward = report.phases.forward.flops, backward = report.phases.backward.flops;
  section("Operations", forward ? `The backward pass computes ${(backward / forward).toFixed(2)} times what the forward pass does.` : "",
    table(header("group"), rows(report.groups, all)), element("p", {}, ""), table(header("phase"), rows(report.phases, all)));
  const names = {};
  for (const each of report.operations) {
    const total = names[each.name] ||= { count: 0, flops: 0, seconds: 0, bytes_read: 0, bytes_written: 0 };
    for (const field of Object.keys(total)) total[field] += each[field];
  }
  const order = Object.entries(names).sort(([, a], [, b]) => report.dry ? b.flops - a.flops : b.seconds - a.seconds).slice(0, 20);
  section("Operators", report.dry ? "The twenty that compute most." : "The twenty that take the most time.", table(header("operator"), rows(Object.fromEntries(order), all)));
  roofline(groups);
}

function roofline(groups) {
  const roofs = report.roofs;
  if (!roofs || report.dry) return;
  const width = 1000, height = 340, left = 80, bottom = 30, names = Object.keys(report.groups).slice(0, 3);
  const points = names.map((name, i) => ({ name, i, each: groups[i] })).filter(({ each }) => each.flops && each.seconds)
    .map(({ name, i, each }) => ({ name, i, x: each.flops / (each.bytes_read + each.bytes_written), y: each.flops / each.seconds }));
  const xs = [0.01, 1000], top = roofs.flops_per_second * 2, low = Math.min(roofs.bytes_per_second * xs[0], ...points.map(point => point.y)) / 2;
  const x = value => left + (width - left) * Math.log(value / xs[0]) / Math.log(xs[1] / xs[0]);
  const y = value => (height - bottom) * (1 - Math.log(value / low) / Math.log(top / low));
  const ridge = roofs.flops_per_second / roofs.bytes_per_second;
  const chart = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline of the three groups" });
  for (let power = -2; power <= 3; ++power) {
    chart.append(element("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 0, y2: height - bottom, stroke: "var(--line)" }));
    chart.append(element("text", { x: x(10 ** power), y: height - 10, "text-anchor": "middle" }, String(10 ** power)));
  }
  chart.append(element("polyline", { fill: "none", stroke: "var(--ink)", "stroke-width": 2,
    points: [[xs[0], roofs.bytes_per_second * xs[0]], [ridge, roofs.flops_per_second], [xs[1], roofs.flops_per_second]].map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
  chart.append(element("text", { x: x(ridge) + 8, y: y(roofs.flops_per_second) - 6 }, flop(roofs.flops_per_second) + "/s"));
  chart.append(element("text", { x: width, y: height - bottom - 6, "text-anchor": "end" }, "FLOP a byte"));
  for (const point of points) {
    chart.append(element("circle", { cx: x(point.x), cy: y(point.y), r: 7, fill: colour(point.i) }));
    chart.append(element("text", { x: x(point.x) + 11, y: y(point.y) + 4 }, `${title(point.name)}, ${flop(point.y)}/s`));
  }
  section("Roofline", `This machine's roofs, measured: ${flop(roofs.flops_per_second)}/s and ${bytes(roofs.bytes_per_second)}/s.`, element("div", { class: "wide" }, chart));
}

function byLayer() {
  const root = { children: {}, bytes: components.map(() => 0) };
  for (const each of memory.modules || []) {
    const path = each.module ? each.module.split(".") : ["(no layer)"];
    let node = root;
    for (const word of ["", ...path]) {
      if (word) node = node.children[word] ||= { children: {}, bytes: components.map(() => 0) };
      components.forEach((name, i) => node.bytes[i] += each.at_peak[name]);
    }
  }
  const draw = (name, node, depth) => {
    const children = Object.entries(node.children).sort(([, a], [, b]) => sum(b.bytes) - sum(a.bytes));
    const row = element("div", { class: "row" }, element("span", { class: "name" }, name), element("span", { class: "size" }, bytes(sum(node.bytes))));
    if (!children.length) return element("div", { class: "leaf" }, row, bar(node.bytes));
    const open = element("details", depth < 2 ? { open: "" } : {}, element("summary", {}, row, bar(node.bytes)));
    for (const [child, below] of children) open.append(draw(child, below, depth + 1));
    return open;
  };
  section("Layers at the peak", "", draw("everything", root, 0));
}

function whatIf() {
  if (!(report.alternatives || []).length) return;
  const now = memory.gpu ? memory.gpu.reserved + memory.gpu.context : memory.peak;
  section("What if", "The same step, predicted with one thing changed.", table(["change", "needed", "difference"], report.alternatives.map(each =>
    [each.name, bytes(each.needed), (each.needed <= now ? "−" : "+") + bytes(Math.abs(each.needed - now))])));
}

summary(); atThePeak(); onTheGpu(); overTime(); operations(); whatIf(); byLayer();
for (const note of report.notes || []) page.append(element("p", {}, note));
document.documentElement.dataset.fits = String(document.documentElement.scrollWidth <= window.innerWidth);
</script>
</body>
</html>
)html";

// A report holds names from outside: "</" would end the element it stands in.
std::string inert(std::string json) {
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

std::string to_html(const Report& report) { return str(kHead, inert(to_json(report)), kScript); }

}  // namespace hasten::anatomy
