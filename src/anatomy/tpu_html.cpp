// Writes the account of a dry TPU as one self-contained HTML page.
#include "anatomy/page.h"
#include "hasten/anatomy/tpu_account.h"

namespace hasten::anatomy {
namespace {

constexpr const char* kScript = R"html(
const components = Object.keys(report.components), anatomy = report.anatomy, peak = report.peak;
titles.unknown = "held besides";
const exact = value => value.toLocaleString("en");
const times = (part, whole) => whole ? (part / whole).toFixed(2) : "–";

function summary() {
  const left = report.memory - peak.total;
  const figures = [[bytes(peak.total), "memory at the peak"]];
  if (report.memory) figures.push([bytes(report.memory), "of a device, for programs"],
    report.fits ? [bytes(left), "left"] : [left < 0 ? bytes(-left) : "–", "missing"]);
  if (anatomy) figures.push([bytes(anatomy.peak), "the anatomy's prediction, without code"]);
  figures.push([exact(report.programs), `programs, compiled in ${report.compile_seconds.toFixed(1)} s`]);
  heading("A TPU's memory", `Predicted for ${report.device}, one device of ${report.devices} (${report.compiled_for}), ${report.steps} step${report.steps === 1 ? "" : "s"}: compiled, not run.`, figures);
  if (report.memory) page.append(element("p", {}, report.stopped ? "The program ended early: " + report.stopped : report.fits ? "It fits." : "It does not fit."));
  if (!report.ahead_of_time) page.append(element("p", {}, "These are not a TPU's figures: the engine is no TPU's compiler."));
}

function mostOfEach() {
  const values = components.map(name => report.components[name]);
  const header = ["component", "bytes on the TPU", ...(anatomy ? ["anatomy (CPU)", "ratio"] : [])];
  section("Most of each", "Tensors with the padding of their tiles, each at its own moment.", bar(components, values), key(components),
    table(header, components.map((name, i) => [title(name), exact(values[i]),
      ...(anatomy ? [exact(anatomy.most[name]), times(values[i], anatomy.most[name])] : [])])));
}

function atThePeak() {
  const parts = ["tensors", "temporaries", "code"];
  section("Memory at the peak", peak.program ? `The program was ${peak.program}.` : "", bar(parts, parts.map(part => peak[part])), key(parts),
    table(["", "bytes on the TPU", "share"], [...parts, "total"].map(part => [part, exact(peak[part]), share(peak[part], peak.total)])));
}

function byPhase() {
  section("Most in each phase", report.in_order ? "" : "Operators were deferred: phases are those of the moment they ran.",
    table(["phase", "in all", "tensors", "temporaries", "code", "program"], Object.entries(report.peak_in_phase).map(([name, each]) =>
      [name, exact(each.total), exact(each.tensors), exact(each.temporaries), exact(each.code), each.program || "–"])));
}

function notCompiled() {
  if (!report.failed.length) return;
  section("Not compiled", "", table(["program", "module", "the compiler says"], report.failed.map(each => [each.program || "–", each.module || "–", each.message])));
}

summary(); mostOfEach(); atThePeak(); byPhase(); whatIf(peak.total); notCompiled();
)html";

}  // namespace

std::string to_html(const TpuAccount& account, const TpuPrediction* prediction) {
  return page("A TPU's memory", to_json(account, prediction), kScript);
}

}  // namespace hasten::anatomy
