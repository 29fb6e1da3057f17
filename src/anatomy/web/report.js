const memory = report.memory, components = Object.keys(memory.at_peak);

function showSummary() {
  const figures = memory.known ? [[bytes(memory.peak), "memory at the peak"]] : [];
  figures.push([memory.parameters.toLocaleString("en"), "parameters"]);
  if (memory.known) figures.push([memory.parameters ? (memory.peak / memory.parameters).toFixed(2) + " B" : "–", "per parameter"]);
  if (!report.dry && report.seconds > 0) {
    figures.push([(report.samples / report.seconds).toLocaleString("en", { maximumSignificantDigits: 3 }), "samples per second"]);
    if (report.tokens) figures.push([Math.round(report.tokens / report.seconds).toLocaleString("en"), "tokens per second"]);
  }
  if (report.model_flops_utilization) figures.push([percentage(report.model_flops_utilization, 1), "model FLOPs utilization (MFU)"]);
  if (report.dry && report.min_step_seconds) figures.push([(1000 * report.min_step_seconds).toPrecision(3) + " ms", "lower bound for a step"]);
  if (report.expected_step) figures.push([(1000 * report.expected_step.seconds).toPrecision(3) + " ms", `expected for a step, ± ${percentage(report.expected_step.uncertainty, 1)}`]);
  if (memory.gpu) figures.push([bytes(memory.gpu.reserved + memory.gpu.context), memory.gpu.capacity ? `of the GPU's ${bytes(memory.gpu.capacity)}` : "memory of the GPU"]);
  heading("Training anatomy", `${report.dry ? "Predicted" : "Measured"} on ${memory.gpu && memory.gpu.title || report.device}, ${report.steps} step${report.steps === 1 ? "" : "s"}.`, figures);
}

function showPeak() {
  const values = components.map(name => memory.at_peak[name]);
  const where = [memory.peak_operation, memory.peak_module].filter(word => word).join(" of ");
  const phase = memory.peak_phase === "other" ? "outside of the phases of a step" : `in the ${memory.peak_phase} ${memory.peak_phase === "optimizer" ? "step" : "pass"}`;
  section("Memory at the peak", `The peak was ${phase}${where ? ", in " + where : ""}.`,
    bar(components, values), legend(components), table(["component", "bytes", "share", "per parameter", "textbook"], components.map((name, i) =>
      [title(name), values[i].toLocaleString("en"), percentage(values[i], memory.peak),
        i < 3 && memory.parameters ? (values[i] / memory.parameters).toFixed(2) + " B" : "", (memory.textbook[name] || { text: "" }).text])));
}

function showGpuMemory() {
  const gpu = memory.gpu;
  if (!gpu) return;
  const needed = gpu.reserved + gpu.context;
  const parts = [["tensors at the peak", memory.peak], ["cached by the allocator at the peak", gpu.reserved_at_peak - memory.peak],
    ["additionally cached at other times", gpu.reserved - gpu.reserved_at_peak], ["context, kernels, libraries", gpu.context], ["total", needed]];
  const subject = `${gpu.title || "GPU"} (${bytes(gpu.capacity)})`;
  const verdict = !gpu.capacity ? "" : gpu.missing ? `The step does not fit the ${subject}: ${bytes(gpu.missing)} more are needed.`
    : `The step fits the ${subject}: ${bytes(gpu.capacity - needed)} remain free.`;
  section("Memory of the GPU", verdict, table(["", "bytes", "share"], parts.map(([name, value]) => [name, value.toLocaleString("en"), percentage(value, needed)])));
}

function showTimeline() {
  const points = memory.timeline || [];
  if (points.length < 2) return;
  const width = 1000, height = 320, left = 70, bottom = 24, maximum = memory.peak;
  const step = report.dry;  // a prediction has an order, but no times
  const end = step ? points.length - 1 : points[points.length - 1].seconds || 1;
  const x = i => left + (width - left) * (step ? i : points[i].seconds) / end;
  const y = value => (height - bottom) * (1 - value / maximum);
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
    const value = maximum * i / 4;
    chart.append(element("line", { x1: left, x2: width, y1: y(value), y2: y(value), stroke: "var(--line)", "stroke-width": 1 }));
    chart.append(element("text", { x: left - 6, y: Math.max(12, y(value) + 4), "text-anchor": "end" }, bytes(value)));
  }
  chart.append(element("text", { x: left, y: height - 6 }, step ? "first allocation" : "0 s"));
  chart.append(element("text", { x: width, y: height - 6, "text-anchor": "end" }, step ? "last allocation or release" : end.toPrecision(3) + " s"));
  section("Memory over time", "The memory of all allocations, stacked by component.", element("div", { class: "wide" }, chart), legend(components));
}

function showOperations() {
  const rows = (record, all) => Object.entries(record).map(([name, each]) => {
    const traffic = each.bytes_read + each.bytes_written;
    const cells = [title(name), each.count.toLocaleString("en"), flop(each.flops), percentage(each.flops, all.flops),
      bytes(each.bytes_read), bytes(each.bytes_written), traffic ? (each.flops / traffic).toFixed(2) : "–"];
    return report.dry ? cells : [...cells, (1000 * each.seconds).toFixed(1) + " ms", percentage(each.seconds, all.seconds)];
  });
  const header = first => [first, "count", "FLOP", "share", "read", "written", "FLOP per byte", ...(report.dry ? [] : ["time", "share"])];
  const groups = Object.values(report.groups);
  if (!sum(groups.map(each => each.count))) return;
  const all = { flops: sum(groups.map(each => each.flops)), seconds: sum(groups.map(each => each.seconds)) };
  section("Operations", report.backward_to_forward_ratio ? `The backward pass takes ${report.backward_to_forward_ratio.toFixed(2)} times the FLOP of the forward pass.` : "",
    table(header("group"), rows(report.groups, all)), element("p", {}, ""), table(header("phase"), rows(report.phases, all)));
  const names = {};
  for (const each of report.operations) {
    const total = names[each.name] ||= { count: 0, flops: 0, seconds: 0, bytes_read: 0, bytes_written: 0 };
    for (const field of Object.keys(total)) total[field] += each[field];
  }
  const order = Object.entries(names).sort(([, a], [, b]) => report.dry ? b.flops - a.flops : b.seconds - a.seconds).slice(0, 20);
  section("Operators", report.dry ? "The 20 operators with the most FLOP." : "The 20 operators that take the most time.", table(header("operator"), rows(Object.fromEntries(order), all)));
  showRoofline(groups);
}

function showRoofline(groups) {
  const roofs = report.roofs;
  if (!roofs || report.dry) return;
  const rates = `at most ${flop(roofs.flops_per_second)}/s in float and ${bytes(roofs.bytes_per_second)}/s.`;
  // The host does not know how long each operator takes on a GPU.
  if (roofs.source) return section("Roofline", `From ${roofs.source}: ${rates}`);
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
  chart.append(element("text", { x: width, y: height - bottom - 6, "text-anchor": "end" }, "FLOP per byte"));
  for (const point of points) {
    chart.append(element("circle", { cx: x(point.x), cy: y(point.y), r: 7, fill: colour(point.i) }));
    chart.append(element("text", { x: x(point.x) + 11, y: y(point.y) + 4 }, `${title(point.name)}, ${flop(point.y)}/s`));
  }
  section("Roofline", `Measured on this machine: ${rates}`, element("div", { class: "wide" }, chart));
}

function showLayers() {
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
    if (!children.length) return element("div", { class: "leaf" }, row, bar(components, node.bytes));
    const open = element("details", depth < 2 ? { open: "" } : {}, element("summary", {}, row, bar(components, node.bytes)));
    for (const [child, below] of children) open.append(draw(child, below, depth + 1));
    return open;
  };
  section("Layers at the peak", "", draw("total", root, 0));
}

showSummary();
if (memory.known) { showPeak(); showGpuMemory(); showTimeline(); }
showOperations();
showChanges();
if (memory.known) showLayers();
for (const note of report.notes || []) page.append(element("p", {}, note));
