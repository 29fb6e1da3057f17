// A libFuzzer target for the module that reads Arrow and Parquet with Arrow's libraries. These are
// not instrumented. The fuzzer still finds crashes in them, and reads of the module outside of a
// buffer.
//
// Each row of each column of an accepted file is read, or refused with a problem. The memory is
// limited to that of decoded values.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "data/arrow_table.h"
#include "parsed_file.h"

using namespace hasten;

namespace {

constexpr std::int64_t kMaxRows = 1000;

void require(bool holds) {
  if (!holds) std::abort();
}

std::int64_t values_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

void read_row(const ArrowTable& table, std::size_t index, const ArrowColumn& column,
              std::int64_t row) {
  ArrowCell cell;
  if (!table.find(index, row, cell).empty()) return;
  require(cell.shape.size() == column.lists && cell.count == values_of(cell.shape));
  const auto count = static_cast<std::size_t>(cell.count);
  if (count > 1 << 20) return;
  if (column.value == ArrowValue::integer) {
    std::vector<std::int64_t> values(count);
    (void)table.copy(index, cell, values.data());
  } else if (column.value == ArrowValue::number) {
    std::vector<float> floats(count);
    (void)table.copy(index, cell, floats.data());
    std::vector<double> doubles(count);
    (void)table.copy(index, cell, doubles.data());
  } else if (column.value == ArrowValue::boolean) {
    const std::unique_ptr<bool[]> values(new bool[count]);
    (void)table.copy(index, cell, values.get());
  } else if (column.value == ArrowValue::text) {
    std::vector<std::string_view> texts;
    if (!table.texts(index, cell, texts).empty()) return;
    std::size_t sum = 0;  // reads each byte
    for (const std::string_view text : texts)
      for (const char letter : text) sum += static_cast<unsigned char>(letter);
    require(texts.size() == count && sum < SIZE_MAX);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that a read beyond its end is detected.
  const std::vector<char> bytes(data, data + size);
  // Arrow's own allocator is not counted.
  static const int uses_malloc = setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1);
  require(uses_malloc == 0);
  const fuzz::MemoryLimit limit(
      size + static_cast<std::size_t>(max_decoded_bytes(static_cast<std::int64_t>(size))));
  ArrowFile file;
  hasten_open_arrow({bytes.data(), bytes.size()}, file);
  require(file.problem.empty() != (file.table == nullptr));
  if (!file.table) return 0;
  ArrowTable& table = *file.table;
  for (std::size_t index = 0; index < table.columns().size(); ++index) {
    const ArrowColumn& column = table.columns()[index];
    if (!table.read(index).empty()) continue;
    std::int64_t null_row = -1;
    if (!table.first_null(index, null_row).empty()) continue;
    require(null_row >= -1 && null_row < table.rows());
    std::vector<std::string> texts;
    if (column.is_dictionary && !table.texts_of(index, texts).empty()) continue;
    for (std::int64_t row = 0; row < table.rows() && row < kMaxRows; ++row)
      read_row(table, index, column, row);
  }
  return 0;
}
