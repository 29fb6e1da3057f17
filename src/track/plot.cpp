#include "track/plot.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_line.h"
#include "base/page.h"
#include "track/web/plot.js.h"

namespace hasten {
namespace {

using PlotJson = nlohmann::ordered_json;

PlotJson points_of(const LoggedCurve& curve) {
  PlotJson points = PlotJson::array();
  for (const auto& [step, value] : curve)
    points.push_back({step, std::isfinite(value) ? PlotJson(value) : PlotJson(nullptr)});
  return points;
}

}  // namespace

std::string plot_page(const std::vector<LoggedRun>& runs, const PlotOptions& options) {
  PlotJson out = {{"smoothing", options.smoothing}, {"log_scale", options.log_scale}};
  out["runs"] = PlotJson::array();
  for (const LoggedRun& run : runs) {
    PlotJson curves = PlotJson::object();
    for (const auto& [name, curve] : run.curves) curves[name] = points_of(curve);
    out["runs"].push_back({{"name", run.name}, {"curves", std::move(curves)}});
  }
  return render_page("Runs", json_line(out), embedded::kPlotScript);
}

}  // namespace hasten
