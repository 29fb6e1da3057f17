
const components = Object.keys(report.components), anatomy = report.anatomy, peak = report.peak;
titles.unknown = "other tensors";
const grouped = value => value.toLocaleString("en");
const ratio = (part, whole) => whole ? (part / whole).toFixed(2) : "–";

function showSummary() {
  const left = report.memory - peak.total;
  const figures = [[bytes(peak.total), "memory at the peak"]];
  if (report.memory) figures.push([bytes(report.memory), "of each device, for programs"],
    report.fits ? [bytes(left), "free"] : [left < 0 ? bytes(-left) : "–", "more needed"]);
  if (anatomy) figures.push([bytes(anatomy.peak), "the anatomy's prediction, without code"]);
  figures.push([grouped(report.programs), `programs, compiled in ${report.compile_seconds.toFixed(1)} s`]);
  heading("TPU memory", `Predicted for ${report.device}, one device of ${report.devices} (${report.compiled_for}), ${report.steps} step${report.steps === 1 ? "" : "s"}: compiled, not run.`, figures);
  if (report.memory) page.append(element("p", {}, report.stopped ? "The program ended early: " + report.stopped : report.fits ? "The step fits." : "The step does not fit."));
  if (!report.ahead_of_time) page.append(element("p", {}, "The compiler is not one for TPUs, so the figures are not those of a TPU."));
}

function showComponents() {
  const values = components.map(name => report.components[name]);
  const header = ["component", "bytes on the TPU", ...(anatomy ? ["anatomy (CPU)", "ratio"] : [])];
  section("Peak of each component", "Tensors including the padding of their tiles. The components peak at different times.", bar(components, values), legend(components),
    table(header, components.map((name, i) => [title(name), grouped(values[i]),
      ...(anatomy ? [grouped(anatomy.max_bytes[name]), ratio(values[i], anatomy.max_bytes[name])] : [])])));
}

function showPeak() {
  const parts = ["tensors", "temporaries", "code"];
  section("Memory at the peak", peak.program ? `The running program was ${peak.program}.` : "", bar(parts, parts.map(part => peak[part])), legend(parts),
    table(["", "bytes on the TPU", "share"], [...parts, "total"].map(part => [part, grouped(peak[part]), percentage(peak[part], peak.total)])));
}

function showPhases() {
  section("Peak in each phase", report.in_order ? "" : "Operators were deferred; each counts in the phase in which it ran.",
    table(["phase", "total", "tensors", "temporaries", "code", "program"], Object.entries(report.peak_in_phase).map(([name, each]) =>
      [name, grouped(each.total), grouped(each.tensors), grouped(each.temporaries), grouped(each.code), each.program || "–"])));
}

function showFailures() {
  if (!report.failed.length) return;
  section("Not compiled", "", table(["program", "module", "compiler message"], report.failed.map(each => [each.program || "–", each.module || "–", each.message])));
}

showSummary(); showComponents(); showPeak(); showPhases(); showChanges(); showFailures();
