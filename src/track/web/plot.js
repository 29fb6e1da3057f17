const visibleRuns = new Set(report.runs.map((run, i) => i));
const colours = 7, colourOf = i => colour(i % colours);
let smoothing = report.smoothing, logarithmic = report.log_scale;

// Returns the running mean of the points that are numbers, where a first value counts no more than a later one.
function smoothed(points) {
  let mean = 0, weight = 0;
  return points.map(([step, value]) => {
    if (value === null) return [step, null];
    mean = smoothing * mean + (1 - smoothing) * value;
    weight = smoothing * weight + (1 - smoothing);
    return [step, mean / weight];
  });
}

// A line ends where a value is missing: one that is not finite, or not positive on a logarithmic scale.
function segmentsOf(points) {
  const lines = [[]];
  for (const [step, value] of points) {
    if (value !== null && (!logarithmic || value > 0)) lines[lines.length - 1].push([step, value]);
    else if (lines[lines.length - 1].length) lines.push([]);
  }
  return lines.filter(line => line.length);
}

function ticks(low, high) {
  if (logarithmic) {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) all.push(10 ** power);
    return all.filter(tick => tick >= low / 1.001 && tick <= high * 1.001);
  }
  const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough * 0.999), all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) all.push(i * step);
  return all;
}

const number = value => value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(4));

const minBy = (all, by) => all.reduce((best, each) => Math.min(best, by(each)), Infinity);
const maxBy = (all, by) => all.reduce((best, each) => Math.max(best, by(each)), -Infinity);

function chart(name) {
  const width = 1000, height = 320, left = 80, bottom = 30, top = 12;
  const curves = report.runs.map((run, i) => [run.curves[name] || [], i]).map(([logged, i]) => [i, segmentsOf(smoothed(logged)), segmentsOf(logged)]).filter(([i, lines]) => visibleRuns.has(i) && lines.length);
  const points = curves.flatMap(([, lines, logged]) => smoothing > 0 ? [...lines.flat(), ...logged.flat()] : lines.flat());
  if (!points.length) return element("p", {}, "No values to show.");
  let first = minBy(points, p => p[0]), last = maxBy(points, p => p[0]), low = minBy(points, p => p[1]), high = maxBy(points, p => p[1]);
  if (first === last) { first -= 1; last += 1; }
  if (low === high) { const gap = logarithmic ? low / 2 : Math.abs(low) / 2 || 1; low -= gap; high += gap; }
  const scale = logarithmic ? Math.log10 : value => value;
  const x = step => left + (step - first) / (last - first) * (width - left - 10);
  const y = value => top + (scale(high) - scale(value)) / (scale(high) - scale(low)) * (height - top - bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
  for (const tick of ticks(low, high))
    svg.append(element("line", { x1: left, x2: width - 10, y1: y(tick), y2: y(tick), stroke: "var(--line)" }),
      element("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
  for (let i = 0; i <= 4; ++i) {
    const step = first + (last - first) * i / 4;
    svg.append(element("text", { x: x(step), y: height - 8, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, number(Math.round(step))));
  }
  const drawLine = (i, line, opacity) => svg.append(line.length === 1
    ? element("circle", { cx: x(line[0][0]), cy: y(line[0][1]), r: 3, fill: colourOf(i), opacity })
    : element("polyline", { fill: "none", stroke: colourOf(i), "stroke-width": 1.8, "stroke-linejoin": "round", opacity,
      points: line.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
  if (smoothing > 0) for (const [i, , logged] of curves) for (const line of logged) drawLine(i, line, 0.25);
  for (const [i, lines] of curves) for (const line of lines) drawLine(i, line, 1);
  svg.addEventListener("mousemove", event => {
    const box = svg.getBoundingClientRect(), at = first + ((event.clientX - box.left) / box.width * width - left) / (width - left - 10) * (last - first);
    const nearest = points.reduce((best, each) => Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best)[0];
    readout.textContent = `step ${nearest}: ` + curves.map(([i, lines]) => [report.runs[i].name, lines.flat().find(each => each[0] === nearest)])
      .filter(([, each]) => each).map(([run, each]) => `${run} ${number(each[1])}`).join(", ");
  });
  const readout = element("p", {}, "\u00a0");
  return element("div", {}, element("div", { class: "wide" }, svg), readout);
}

const names = [...new Set(report.runs.flatMap(run => Object.keys(run.curves)))].sort();
const containers = new Map();
function draw() { for (const [name, container] of containers) container.replaceChildren(chart(name)); }

function control(text, attributes, change) {
  const input = element("input", attributes);
  input.addEventListener("input", () => { change(input); draw(); });
  return element("label", {}, input, text);
}

heading("Runs", `${report.runs.length} run${report.runs.length === 1 ? "" : "s"}, ${names.length} curve${names.length === 1 ? "" : "s"} by optimizer step.`, []);
page.append(element("div", { class: "legend" }, ...report.runs.map((run, i) => {
  const label = control(run.name, { type: "checkbox", checked: "" }, input => input.checked ? visibleRuns.add(i) : visibleRuns.delete(i));
  label.prepend(element("i", { style: `background:${colourOf(i)}` }));
  return label;
})));
page.append(element("div", { class: "legend" },
  control(" logarithmic scale", { type: "checkbox", ...(logarithmic ? { checked: "" } : {}) }, input => { logarithmic = input.checked; }),
  control(" smoothing", { type: "range", min: 0, max: 0.99, step: 0.01, value: smoothing }, input => { smoothing = +input.value; })));
for (const name of names) {
  containers.set(name, element("div"));
  section(name, "", containers.get(name));
}
draw();
