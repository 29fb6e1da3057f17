#include "track/dashboard_view.h"

#include <algorithm>
#include <cmath>

#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::size_t kMaxShownRanks = 8, kMaxShownMessages = 5;
constexpr int kMinCurveRows = 3;

std::string separator(bool unicode) { return unicode ? " \u00B7 " : " | "; }

std::string bar(double fraction, int width, bool unicode) {
  std::string out;
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * width);
  for (int i = 0; i < width; ++i) {
    if (unicode) {
      out += i < filled ? "\u2588" : "\u2591";
    } else {
      out += i < filled ? '#' : '.';
    }
  }
  return out;
}

double fraction_of(std::int64_t done, std::int64_t all) {
  return all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0;
}

ScreenLine title_line(const DashboardFigures& f, bool unicode) {
  ScreenLine line = {{"hasten", TextStyle::strong}, {separator(unicode) + f.title}};
  if (!f.activity.empty()) line.push_back({separator(unicode) + f.activity, TextStyle::faint});
  return line;
}

ScreenLine progress_line(const DashboardFigures& f, int columns, bool unicode) {
  const bool evaluates = f.to_evaluate > 0;
  const std::int64_t done = evaluates ? f.evaluated : f.step,
                     all = evaluates ? f.to_evaluate : f.max_steps;
  const double fraction = fraction_of(done, all),
               rate = f.seconds > 0 ? static_cast<double>(f.steps_made) / f.seconds : 0;
  std::string left = "?";
  if (rate > 0) left = human_duration(static_cast<double>(f.max_steps - f.step) / rate);
  const std::string tail = str(" ", static_cast<int>(fraction * 100), "%", separator(unicode),
                               evaluates ? "batch " : "step ", done, "/", all, separator(unicode),
                               human_duration(f.seconds), ", ", left, " left");
  const int width = columns - static_cast<int>(tail.size()) - 1;
  return {{width >= 5 ? bar(fraction, std::min(width, 40), unicode) : "", TextStyle::first_curve},
          {tail}};
}

std::string flops_text(double flops) {
  return flops >= 1e12 ? fixed(flops / 1e12, 2) + " TFLOP/s" : fixed(flops / 1e9, 1) + " GFLOP/s";
}

ScreenLine rate_line(const DashboardFigures& f, bool unicode) {
  const double rate = f.seconds > 0 ? static_cast<double>(f.steps_made) / f.seconds : 0;
  std::vector<std::string> parts = {str("epoch ", fixed(f.epoch, 2), " of ", f.num_train_epochs)};
  if (rate > 0) {
    parts.push_back(rate < 1 ? fixed(1 / rate, 2) + " s/step" : fixed(rate, 2) + " steps/s");
    parts.push_back(fixed(rate * f.rows_per_step, 1) + " rows/s");
  }
  if (f.flops_per_second > 0 && f.roof > 0) {
    parts.push_back(str(fixed(100 * f.flops_per_second / f.roof, 1), " % of the machine's roof (",
                        flops_text(f.flops_per_second), " of ", flops_text(f.roof), ")"));
  }
  return {{join(parts, separator(unicode))}};
}

ScreenLine metrics_line(const DashboardFigures& f, bool unicode) {
  std::vector<std::string> parts;
  if (!f.step_loss.empty()) parts.push_back("loss " + fixed(f.step_loss.last(), 4));
  for (const std::string& name : f.metrics) {
    if (name != "loss") parts.push_back(name + " " + significant(f.logged.at(name).last(), 4));
  }
  return {{join(parts, separator(unicode))}};
}

ScreenLine memory_line(const DashboardFigures& f, bool unicode) {
  std::vector<std::string> parts;
  for (const DashboardMemory& each : f.memory)
    parts.push_back(each.name + " " + human_bytes(each.bytes));
  return {{f.memory_at_peak ? "memory at the peak: " : "memory: ", TextStyle::strong},
          {join(parts, separator(unicode))}};
}

std::vector<ScreenLine> rank_lines(const DashboardFigures& f, bool unicode) {
  std::vector<ScreenLine> lines;
  for (std::size_t rank = 0; rank < std::min(f.ranks.size(), kMaxShownRanks); ++rank) {
    const DashboardRank& each = f.ranks[rank];
    std::vector<std::string> parts = {each.host, fixed(each.cores, 2) + " cores",
                                      human_bytes(each.resident) + " in RAM"};
    if (each.device_memory > 0) parts.push_back(human_bytes(each.device_memory) + " on its GPU");
    lines.push_back(
        {{str("rank ", rank, ": "), TextStyle::strong}, {join(parts, separator(unicode))}});
  }
  if (f.ranks.size() > kMaxShownRanks)
    lines.push_back(
        {{str("and ", f.ranks.size() - kMaxShownRanks, " more ranks"), TextStyle::faint}});
  return lines;
}

ScreenLine keys_line(const DashboardFigures& f) {
  ScreenLine line = {
      {"q", TextStyle::strong}, {" stop  "},     {"s", TextStyle::strong},   {" save  "},
      {"e", TextStyle::strong}, {" evaluate  "}, {"Tab", TextStyle::strong}, {" next metric  "}};
  if (!f.notice.empty()) line.push_back({f.notice, TextStyle::warning});
  return line;
}

// Draws the losses in the upper part and the chosen metric in the lower one.
std::vector<ScreenLine> curves(const DashboardFigures& f, const ScreenSize& size, bool unicode) {
  const auto eval_loss = f.logged.find("eval_loss");
  std::vector<DrawnCurve> losses = {{&f.step_loss, TextStyle::first_curve}};
  ScreenLine title = {{"loss of each step", TextStyle::first_curve}};
  if (eval_loss != f.logged.end()) {
    losses.push_back({&eval_loss->second, TextStyle::second_curve});
    title.push_back({"  eval_loss", TextStyle::second_curve});
  }
  const bool two = !f.metrics.empty() && size.rows >= 2 * (kMinCurveRows + 1);
  const int upper = two ? size.rows - size.rows / 2 : size.rows;
  std::vector<ScreenLine> lines = {title};
  for (ScreenLine& line : draw_curves(losses, {size.columns, upper - 1}, unicode))
    lines.push_back(std::move(line));
  if (!two) return lines;
  const std::string& name = f.metrics[std::min(f.chosen, f.metrics.size() - 1)];
  lines.push_back({{name, TextStyle::second_curve}});
  for (ScreenLine& line : draw_curves({{&f.logged.at(name), TextStyle::second_curve}},
                                      {size.columns, size.rows - upper - 1}, unicode))
    lines.push_back(std::move(line));
  return lines;
}

}  // namespace

std::vector<ScreenLine> dashboard_lines(const DashboardFigures& f, const ScreenSize& size,
                                        bool unicode, const std::vector<std::string>& messages) {
  std::vector<ScreenLine> lines = {title_line(f, unicode), progress_line(f, size.columns, unicode),
                                   rate_line(f, unicode), metrics_line(f, unicode)};
  std::vector<ScreenLine> below;
  if (!f.memory.empty()) below.push_back(memory_line(f, unicode));
  for (ScreenLine& line : rank_lines(f, unicode)) below.push_back(std::move(line));
  const ScreenLine keys = keys_line(f);

  int free = size.rows - static_cast<int>(lines.size() + below.size()) - 1;
  const int shown = std::clamp(free - kMinCurveRows - 1, 0,
                               static_cast<int>(std::min(messages.size(), kMaxShownMessages)));
  free -= shown;
  if (free > kMinCurveRows) {
    for (ScreenLine& line : curves(f, {size.columns, free}, unicode))
      lines.push_back(std::move(line));
  }
  for (ScreenLine& line : below) lines.push_back(std::move(line));
  for (std::size_t i = messages.size() - static_cast<std::size_t>(shown); i < messages.size(); ++i)
    lines.push_back({{messages[i], TextStyle::faint}});
  if (static_cast<int>(lines.size()) > size.rows - 1)
    lines.resize(static_cast<std::size_t>(std::max(0, size.rows - 1)));
  lines.push_back(keys);
  return lines;
}

}  // namespace hasten
