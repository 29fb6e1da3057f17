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
const percentage = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(part / whole < 0.001 ? 3 : 1) + " %" : "–";
const sum = list => list.reduce((a, b) => a + b, 0);

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "polyline"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of children) node.append(child);
  return node;
}
function section(text, below, ...children) {
  page.append(element("h2", {}, text));
  if (below) page.append(element("p", {}, below));
  page.append(...children);
}
function table(header, rows) {
  const body = element("table", {}, element("tr", {}, ...header.map(word => element("th", {}, word))));
  for (const row of rows) body.append(element("tr", {}, ...row.map(cell => element("td", {}, cell))));
  return element("div", { class: "wide" }, body);
}
function legend(names) {
  return element("div", { class: "legend" }, ...names.map((name, i) =>
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
  page.append(element("div", { class: "figures" }, ...figures.map(([value, label]) =>
    element("div", { class: "figure" }, element("b", {}, value), element("span", {}, label)))));
}
const duration = seconds => seconds > 0 ? (seconds < 1 ? (1000 * seconds).toPrecision(3) + " ms" : seconds.toPrecision(3) + " s") : "–";
const signed = (value, text) => (value < 0 ? "−" : value > 0 ? "+" : "") + text;
function showChanges() {
  const all = report.what_if;
  if (!all) return;
  const baseline = { name: "as asked", bytes: all.bytes, seconds: all.seconds, exactness: "exact" };
  const row = ({ name, bytes: needed, seconds, exactness }) => {
    const more = needed - all.bytes, slower = Math.round(100 * (seconds / all.seconds - 1));
    const known = needed > 0 && all.bytes > 0;
    return [name, needed > 0 ? bytes(needed) : "–", known ? signed(more, bytes(Math.abs(more))) : "–", duration(seconds),
      seconds > 0 && all.seconds > 0 ? signed(slower, Math.abs(slower) + " %") : "–", exactness];
  };
  const possible = all.changes.filter(each => !each.rejection_reason), refused = all.changes.filter(each => each.rejection_reason);
  section("What if", "Predictions for the same step with one change each.",
    table(["change", "memory", "difference", "step", "difference", "exactness"], [baseline, ...possible].map(row)));
  for (const each of refused) page.append(element("p", {}, `${each.name} is not possible: ${each.rejection_reason}`));
}
