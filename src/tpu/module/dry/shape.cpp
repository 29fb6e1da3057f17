#include "tpu/module/dry/shape.h"

namespace hasten::dry_tpu {
namespace {

using Sizes = std::vector<std::int64_t>;

std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// Returns the sizes from the most major dimension to the most minor one.
Sizes physical_sizes(const Shape& shape) {
  if (shape.minor_to_major.empty()) return shape.dimensions;
  Sizes sizes;
  for (auto place = shape.minor_to_major.rbegin(); place != shape.minor_to_major.rend(); ++place)
    sizes.push_back(shape.dimensions.at(static_cast<std::size_t>(*place)));
  return sizes;
}

// Replaces each of the most minor dimensions by its number of tiles, and appends the sizes of the
// tile.
Sizes tile_sizes(Sizes sizes, const Sizes& tile) {
  if (sizes.size() < tile.size()) sizes.insert(sizes.begin(), tile.size() - sizes.size(), 1);
  const std::size_t first = sizes.size() - tile.size();
  for (std::size_t i = 0; i < tile.size(); ++i)
    sizes[first + i] = round_up(sizes[first + i], tile[i]) / tile[i];
  sizes.insert(sizes.end(), tile.begin(), tile.end());
  return sizes;
}

}  // namespace

std::int64_t device_bytes(const Shape& shape) {
  Sizes sizes = physical_sizes(shape);
  for (const Sizes& tile : shape.tiles) sizes = tile_sizes(std::move(sizes), tile);
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  return (round_up(elements, shape.tail_alignment) * shape.element_bits + 7) / 8;
}

}  // namespace hasten::dry_tpu
