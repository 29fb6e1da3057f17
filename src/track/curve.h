// File: track/curve.h (internal)
// Curves of a run in text: points that are kept in bounded memory, and their drawing.
//
//   Curve loss;
//   loss.add(step, 0.41);
//   const auto lines = draw_curves({{&loss, TextStyle::first_curve}}, {.columns = 60, .rows = 8});
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/internal_api.h"
#include "track/terminal_screen.h"

namespace hasten {

struct CurvePoint {
  double x = 0, y = 0;
};

// Keeps at most kMaxPoints points: when there are that many, each pair of neighbours becomes its
// mean. Values that are not finite are left out.
class HASTEN_INTERNAL_API Curve {
 public:
  static constexpr std::size_t kMaxPoints = 1024;

  void add(double x, double y);
  // Returns the points. The last values, which do not make a complete point yet, become one point
  // with their mean.
  std::vector<CurvePoint> points() const;
  bool empty() const { return points_.empty() && pending_count_ == 0; }
  // The last value that was added.
  double last() const { return last_; }

 private:
  std::vector<CurvePoint> points_;
  CurvePoint pending_;  // the sums of the point that is not complete yet
  std::int64_t pending_count_ = 0, stride_ = 1;
  double last_ = 0;
};

struct DrawnCurve {
  const Curve* curve = nullptr;
  TextStyle style = TextStyle::first_curve;
};

// Draws curves over one range of x and y, with the limits of y at the left. Each character has two
// by four dots in Unicode, and one in ASCII. Later curves are above earlier ones.
HASTEN_INTERNAL_API std::vector<ScreenLine> draw_curves(const std::vector<DrawnCurve>& curves,
                                                        const ScreenSize& size, bool unicode);

}  // namespace hasten
