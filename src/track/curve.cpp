#include "track/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/utf8.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr int kLabelColumns = 9;  // columns for the limits at the left

struct Limits {
  double from = std::numeric_limits<double>::infinity(),
         to = -std::numeric_limits<double>::infinity();

  void include(double value) {
    from = std::min(from, value);
    to = std::max(to, value);
  }
  // Returns the number of a value's dot, from 0 to `dots` - 1.
  int dot_index(double value, int dots) const {
    const double fraction = to > from ? (value - from) / (to - from) : 0.5;
    return std::clamp(static_cast<int>(std::lround(fraction * (dots - 1))), 0, dots - 1);
  }
};

// The dots of all characters of a drawing.
class DotGrid {
 public:
  DotGrid(int columns, int rows, bool unicode)
      : columns_(columns),
        across_(unicode ? 2 : 1),
        down_(unicode ? 4 : 1),
        bits_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)),
        styles_(bits_.size(), TextStyle::plain) {}

  int width(int columns) const { return columns * across_; }
  int height(int rows) const { return rows * down_; }

  void set(int x, int y, TextStyle style) {
    const std::size_t cell = cell_at(y / down_, x / across_);
    // The order of the dots in the Unicode block of Braille patterns.
    static constexpr unsigned char kBits[2][4] = {{0x01, 0x02, 0x04, 0x40},
                                                  {0x08, 0x10, 0x20, 0x80}};
    if (styles_[cell] != style) bits_[cell] = 0;
    bits_[cell] |= across_ == 2 ? kBits[x % 2][y % 4] : 1;
    styles_[cell] = style;
  }

  void append_row(int row, ScreenLine& line) const {
    for (int column = 0; column < columns_; ++column) {
      const std::size_t cell = cell_at(row, column);
      std::string text = " ";
      if (bits_[cell] != 0) {
        text = "*";
        if (across_ == 2) {
          text.clear();
          append_utf8(0x2800 + bits_[cell], text);
        }
      }
      if (!line.empty() && line.back().style == styles_[cell]) {
        line.back().text += text;
      } else {
        line.push_back({text, styles_[cell]});
      }
    }
  }

 private:
  std::size_t cell_at(int row, int column) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) +
           static_cast<std::size_t>(column);
  }

  int columns_, across_, down_;
  std::vector<unsigned char> bits_;
  std::vector<TextStyle> styles_;
};

}  // namespace

void Curve::add(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y)) return;
  last_ = y;
  pending_.x += x;
  pending_.y += y;
  if (++pending_count_ < stride_) return;
  const auto count = static_cast<double>(pending_count_);
  points_.push_back({pending_.x / count, pending_.y / count});
  pending_ = {};
  pending_count_ = 0;
  if (points_.size() < kMaxPoints) return;
  for (std::size_t i = 0; i < points_.size() / 2; ++i) {
    const CurvePoint &a = points_[2 * i], &b = points_[2 * i + 1];
    points_[i] = {(a.x + b.x) / 2, (a.y + b.y) / 2};
  }
  points_.resize(points_.size() / 2);
  stride_ *= 2;
}

std::vector<CurvePoint> Curve::points() const {
  std::vector<CurvePoint> all = points_;
  const auto count = static_cast<double>(pending_count_);
  if (pending_count_ > 0) all.push_back({pending_.x / count, pending_.y / count});
  return all;
}

std::vector<ScreenLine> draw_curves(const std::vector<DrawnCurve>& curves, const ScreenSize& size,
                                    bool unicode) {
  const int columns = size.columns - kLabelColumns - 1;
  if (columns < 1 || size.rows < 1) return {};
  Limits x, y;
  std::vector<std::vector<CurvePoint>> points;
  for (const DrawnCurve& each : curves) {
    points.push_back(each.curve->points());
    for (const CurvePoint& point : points.back()) {
      x.include(point.x);
      y.include(point.y);
    }
  }
  DotGrid grid(columns, size.rows, unicode);
  const int width = grid.width(columns), height = grid.height(size.rows);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto dot = [&](double at_x, double at_y) {
      grid.set(x.dot_index(at_x, width), height - 1 - y.dot_index(at_y, height), curves[i].style);
    };
    for (std::size_t j = 0; j < points[i].size(); ++j) {
      const CurvePoint& to = points[i][j];
      dot(to.x, to.y);
      if (j == 0) continue;
      const CurvePoint& from = points[i][j - 1];
      const int dots = std::max(std::abs(x.dot_index(to.x, width) - x.dot_index(from.x, width)),
                                std::abs(y.dot_index(to.y, height) - y.dot_index(from.y, height)));
      for (int k = 1; k < dots; ++k) {
        const double fraction = static_cast<double>(k) / dots;
        dot(from.x + fraction * (to.x - from.x), from.y + fraction * (to.y - from.y));
      }
    }
  }
  std::vector<ScreenLine> lines;
  for (int row = 0; row < size.rows; ++row) {
    std::string label;
    if (y.to >= y.from && row == 0) label = significant(y.to, 4);
    if (y.to > y.from && row == size.rows - 1 && row > 0) label = significant(y.from, 4);
    label.resize(kLabelColumns, ' ');
    ScreenLine line = {{label + (unicode ? "\u2502" : "|"), TextStyle::faint}};
    grid.append_row(row, line);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace hasten
