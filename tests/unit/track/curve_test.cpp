#include "track/curve.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

namespace track_curve_test {

using namespace hasten;

namespace {

std::string text_of(const ScreenLine& line) {
  std::string text;
  for (const StyledText& part : line) text += part.text;
  return text;
}

}  // namespace

TEST_CASE("curve: a million points are kept as means of neighbours") {
  Curve curve;
  constexpr int kPoints = 1'000'000;
  for (int i = 0; i < kPoints; ++i) curve.add(i, 2.0 * i);
  const auto points = curve.points();
  CHECK(points.size() <= Curve::kMaxPoints);
  CHECK(points.size() >= Curve::kMaxPoints / 2);
  double mean = 0;
  for (const CurvePoint& point : points) {
    CHECK(point.y == doctest::Approx(2 * point.x));
    mean += point.x / static_cast<double>(points.size());
  }
  CHECK(mean == doctest::Approx(kPoints / 2.0).epsilon(0.01));
  CHECK(curve.last() == 2.0 * (kPoints - 1));
}

TEST_CASE("curve: values that are not finite are left out") {
  Curve curve;
  curve.add(1, std::numeric_limits<double>::quiet_NaN());
  curve.add(2, std::numeric_limits<double>::infinity());
  CHECK(curve.empty());
  CHECK(draw_curves({{&curve, TextStyle::plain}}, {20, 2}, false).size() == 2);
}

TEST_CASE("curve: a rising line is drawn in ASCII with its limits") {
  Curve curve;
  for (int i = 0; i <= 3; ++i) curve.add(i, i);
  const auto lines = draw_curves({{&curve, TextStyle::first_curve}}, {14, 4}, false);
  REQUIRE(lines.size() == 4);
  CHECK(text_of(lines[0]) == "3        |   *");
  CHECK(text_of(lines[1]) == "         |  * ");
  CHECK(text_of(lines[2]) == "         | *  ");
  CHECK(text_of(lines[3]) == "0        |*   ");
}

TEST_CASE("curve: Unicode has two by four dots in each character") {
  Curve curve;
  curve.add(0, 0);
  curve.add(1, 1);
  const auto lines = draw_curves({{&curve, TextStyle::first_curve}}, {11, 1}, true);
  REQUIRE(lines.size() == 1);
  // The line goes from the lower left to the upper right: dots 7 and 3, then 5 and 4.
  CHECK(text_of(lines[0]).substr(text_of(lines[0]).size() - 3) == "\u285C");
}

TEST_CASE("curve: a later curve is above an earlier one, and one place has one colour") {
  Curve first, second;
  for (int i = 0; i < 4; ++i) {
    first.add(i, 0);
    second.add(i, 0);
  }
  const auto lines = draw_curves(
      {{&first, TextStyle::first_curve}, {&second, TextStyle::second_curve}}, {14, 1}, false);
  CHECK(lines[0].back().style == TextStyle::second_curve);
  CHECK(lines[0].back().text == "****");
}

}  // namespace track_curve_test
