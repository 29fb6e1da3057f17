// File: tpu/module/dry/shape.h (internal)
// Computes how many bytes a tensor takes on a device. XLA lays it out in tiles and pads the tiles.
//
//   Shape shape{.element_bits = 32, .dimensions = {64, 32}, .minor_to_major = {0, 1},
//               .tiles = {{8, 128}}};
//   device_bytes(shape);                                // 32 x 128 numbers: 16384
//
// Thread rule: values and a pure function.
#pragma once

#include <cstdint>
#include <vector>

namespace hasten::dry_tpu {

struct Shape {
  std::int64_t element_bits = 0;
  std::vector<std::int64_t> dimensions;
  std::vector<std::int64_t> minor_to_major;  // if empty, the last dimension is the most minor
  // The first tile divides the dimensions, and each later tile divides the one before it.
  std::vector<std::vector<std::int64_t>> tiles;
  std::int64_t tail_alignment = 1;  // in elements
};

std::int64_t device_bytes(const Shape& shape);

}  // namespace hasten::dry_tpu
