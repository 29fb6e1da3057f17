#include "data/arrow_module/column.h"

#include <arrow/util/float16.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace hasten::arrow_files {
namespace {

using arrow::Type;

constexpr const char* kNull = "a null";
constexpr const char* kBadOffset = "a list or a text that ends outside of the file (it is damaged)";

bool holds_lists(Type::type id) {
  return id == Type::LIST || id == Type::LARGE_LIST || id == Type::FIXED_SIZE_LIST;
}

bool is_text(Type::type id) { return id == Type::STRING || id == Type::LARGE_STRING; }

// Returns the array in which an extension type, such as a tensor of the datasets library, is
// stored.
std::shared_ptr<arrow::Array> storage_of(std::shared_ptr<arrow::Array> array) {
  while (array->type_id() == Type::EXTENSION)
    array = static_cast<const arrow::ExtensionArray&>(*array).storage();
  return array;
}

std::shared_ptr<arrow::Array> items_of(const arrow::Array& list) {
  switch (list.type_id()) {
    case Type::LIST:
      return static_cast<const arrow::ListArray&>(list).values();
    case Type::LARGE_LIST:
      return static_cast<const arrow::LargeListArray&>(list).values();
    default:
      return static_cast<const arrow::FixedSizeListArray&>(list).values();
  }
}

// The items of several consecutive lists: [begin, end), `length` in each list.
struct Items {
  std::int64_t begin = 0, end = 0, length = 0;
};

// Does not visit the lists: lists of a fixed size may be empty, so a few bytes can describe
// billions of them.
std::string find_items(const arrow::FixedSizeListArray& lists, std::int64_t first,
                       std::int64_t count, Items& out) {
  const std::int64_t size = lists.value_length(), items = lists.values()->length(),
                     begin = lists.offset() + first, end = begin + count;
  if (size > 0 && end > items / size) return kBadOffset;
  out = {.begin = begin * size, .end = end * size, .length = count > 0 ? size : 0};
  return "";
}

// For lists with offsets, which must lie within the data.
template <class Lists>
std::string find_items(const Lists& lists, std::int64_t first, std::int64_t count, Items& out) {
  if (count == 0) return "";
  const auto* const begins = lists.raw_value_offsets() + first;
  const std::int64_t items = lists.values()->length();
  out = {.begin = begins[0], .end = begins[0]};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t next = begins[i + 1];
    if (out.end < 0 || next < out.end || next > items) return kBadOffset;
    if (i == 0) out.length = next - out.end;
    if (next - out.end != out.length) return "lists of different lengths in one row";
    out.end = next;
  }
  return "";
}

// Finds the items of `count` lists from the list `first`. Returns a problem, or "".
std::string items_in(const arrow::Array& lists, std::int64_t first, std::int64_t count,
                     Items& out) {
  switch (lists.type_id()) {
    case Type::LIST:
      return find_items(static_cast<const arrow::ListArray&>(lists), first, count, out);
    case Type::LARGE_LIST:
      return find_items(static_cast<const arrow::LargeListArray&>(lists), first, count, out);
    default:
      return find_items(static_cast<const arrow::FixedSizeListArray&>(lists), first, count, out);
  }
}

ArrowValue value_of(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::INT8:
    case Type::INT16:
    case Type::INT32:
    case Type::INT64:
    case Type::UINT8:
    case Type::UINT16:
    case Type::UINT32:
    case Type::UINT64:
      return ArrowValue::integer;
    case Type::HALF_FLOAT:
    case Type::FLOAT:
    case Type::DOUBLE:
      return ArrowValue::number;
    case Type::BOOL:
      return ArrowValue::boolean;
    case Type::STRING:
    case Type::LARGE_STRING:
      return ArrowValue::text;
    case Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryType&>(type);
      return is_text(dictionary.value_type()->id()) ? ArrowValue::integer : ArrowValue::other;
    }
    default:
      return ArrowValue::other;
  }
}

bool has_null(const arrow::Array& array, std::int64_t first, std::int64_t count) {
  if (array.null_count() == 0) return false;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (array.IsNull(i)) return true;
  }
  return false;
}

// Calls copy(values) with the raw integers of an array. Returns a problem if it has none.
template <class Copy>
std::string with_integers(const arrow::Array& array, Copy copy) {
  const auto copied = [&](const auto& typed) {
    copy(typed.raw_values());
    return std::string();
  };
  switch (array.type_id()) {
    case Type::INT8:
      return copied(static_cast<const arrow::Int8Array&>(array));
    case Type::INT16:
      return copied(static_cast<const arrow::Int16Array&>(array));
    case Type::INT32:
      return copied(static_cast<const arrow::Int32Array&>(array));
    case Type::INT64:
      return copied(static_cast<const arrow::Int64Array&>(array));
    case Type::UINT8:
      return copied(static_cast<const arrow::UInt8Array&>(array));
    case Type::UINT16:
      return copied(static_cast<const arrow::UInt16Array&>(array));
    case Type::UINT32:
      return copied(static_cast<const arrow::UInt32Array&>(array));
    case Type::UINT64:
      return copied(static_cast<const arrow::UInt64Array&>(array));
    default:
      return "values of type " + array.type()->ToString() + ", which are not integers";
  }
}

std::string copy_integers(const arrow::Array& array, const ArrowCell& cell, std::int64_t* to) {
  return with_integers(
      array, [&](const auto* values) { std::copy_n(values + cell.first, cell.count, to); });
}

void convert(float from, float& to) { to = from; }
void convert(double from, float& to) { to = static_cast<float>(from); }
void convert(double from, double& to) { to = from; }

// Returns in `to` the number that the shortest text of the float means.
void convert(float from, double& to) {
  to = from;
  if (!std::isfinite(from)) return;
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, from).ptr;
  (void)std::from_chars(text, end, to);
}

// Copies numbers that are not integers. Returns a problem if the array has none.
template <class Number>
std::string copy_numbers(const arrow::Array& array, const ArrowCell& cell, Number* to) {
  const auto copied = [&](const auto* values) {
    for (std::int64_t i = 0; i < cell.count; ++i) convert(values[cell.first + i], to[i]);
    return std::string();
  };
  switch (array.type_id()) {
    case Type::FLOAT:
      return copied(static_cast<const arrow::FloatArray&>(array).raw_values());
    case Type::DOUBLE:
      return copied(static_cast<const arrow::DoubleArray&>(array).raw_values());
    case Type::HALF_FLOAT: {
      const std::uint16_t* const bits =
          static_cast<const arrow::HalfFloatArray&>(array).raw_values() + cell.first;
      for (std::int64_t i = 0; i < cell.count; ++i)
        convert(arrow::util::Float16::FromBits(bits[i]).ToFloat(), to[i]);
      return "";
    }
    default:
      return "values of type " + array.type()->ToString() + ", which are not numbers";
  }
}

// Appends views of the texts. Their offsets must lie within the data.
template <class Texts>
std::string append_texts(const Texts& array, std::int64_t first, std::int64_t count,
                         std::vector<std::string_view>& to) {
  const std::int64_t size = array.value_data() ? array.value_data()->size() : 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::int64_t begin = array.value_offset(i), end = array.value_offset(i + 1);
    if (begin < 0 || end < begin || end > size) return kBadOffset;
    to.push_back(begin == end ? std::string_view() : array.GetView(i));
  }
  return "";
}

std::string append_texts(const arrow::Array& array, std::int64_t first, std::int64_t count,
                         std::vector<std::string_view>& to) {
  if (array.type_id() == Type::STRING)
    return append_texts(static_cast<const arrow::StringArray&>(array), first, count, to);
  if (array.type_id() == Type::LARGE_STRING)
    return append_texts(static_cast<const arrow::LargeStringArray&>(array), first, count, to);
  return "values of type " + array.type()->ToString() + ", which are not texts";
}

}  // namespace

ArrowColumn describe(const arrow::DataType& whole) {
  ArrowColumn column{.type = whole.ToString()};
  const arrow::DataType* type = &whole;
  for (;;) {
    if (type->id() == Type::EXTENSION) {
      type = static_cast<const arrow::ExtensionType*>(type)->storage_type().get();
    } else if (holds_lists(type->id())) {
      ++column.lists;
      type = type->field(0)->type().get();
    } else {
      break;
    }
  }
  column.value = value_of(*type);
  column.is_dictionary = type->id() == Type::DICTIONARY && column.value != ArrowValue::other;
  return column;
}

std::string Column::add(const std::shared_ptr<arrow::Array>& array) {
  const arrow::Status status = array->Validate();
  if (!status.ok()) return status.message() + " (it is damaged)";
  Chunk chunk{.first_row = rows_, .values = storage_of(array)};
  while (holds_lists(chunk.values->type_id())) {
    chunk.lists.push_back(chunk.values);
    chunk.values = storage_of(items_of(*chunk.values));
  }
  rows_ += array->length();
  chunks_.push_back(std::move(chunk));
  return "";
}

const Column::Chunk& Column::chunk_of(std::int64_t row) const {
  const auto after =
      std::upper_bound(chunks_.begin(), chunks_.end(), row,
                       [](std::int64_t at, const Chunk& chunk) { return at < chunk.first_row; });
  return *std::prev(after);
}

bool Column::is_null(std::int64_t row) const {
  const Chunk& chunk = chunk_of(row);
  return chunk.outermost().IsNull(row - chunk.first_row);
}

std::string Column::find(std::int64_t row, ArrowCell& cell) const {
  const Chunk& chunk = chunk_of(row);
  cell.chunk = static_cast<std::size_t>(&chunk - chunks_.data());
  cell.shape.clear();
  cell.first = row - chunk.first_row;
  cell.count = 1;
  for (std::size_t level = 0; level < chunk.lists.size(); ++level) {
    const arrow::Array& lists = *chunk.lists[level];
    if (has_null(lists, cell.first, cell.count)) return kNull;
    Items items;
    const std::string problem = items_in(lists, cell.first, cell.count, items);
    if (!problem.empty()) return problem;
    cell.shape.push_back(items.length);
    cell.first = items.begin;
    cell.count = items.end - items.begin;
  }
  return has_null(*chunk.values, cell.first, cell.count) ? kNull : "";
}

std::string Column::first_null(std::int64_t& row) const {
  row = -1;
  for (const Chunk& chunk : chunks_) {
    const bool has_nulls = chunk.values->null_count() > 0 ||
                           std::any_of(chunk.lists.begin(), chunk.lists.end(),
                                       [](const auto& lists) { return lists->null_count() > 0; });
    if (!has_nulls) continue;
    const std::int64_t rows = chunk.outermost().length();
    ArrowCell cell;
    for (std::int64_t at = chunk.first_row; at < chunk.first_row + rows; ++at) {
      const std::string problem = find(at, cell);
      if (problem == kNull) {
        row = at;
        return "";
      }
      if (problem == kBadOffset) return problem;
    }
  }
  return "";
}

std::string Column::texts_of(std::vector<std::string>& texts) const {
  std::vector<std::string_view> longest;
  for (const Chunk& chunk : chunks_) {
    const auto& values = static_cast<const arrow::DictionaryArray&>(*chunk.values);
    const std::shared_ptr<arrow::Array> dictionary = values.dictionary();
    const arrow::Status status = dictionary->Validate();
    if (!status.ok()) return status.message() + " (it is damaged)";
    if (dictionary->null_count() > 0) return "a null in a dictionary";
    std::vector<std::string_view> own;
    const std::string problem = append_texts(*dictionary, 0, dictionary->length(), own);
    if (!problem.empty()) return problem;
    const std::size_t both = std::min(own.size(), longest.size());
    if (!std::equal(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(both), longest.begin()))
      return "dictionaries that give a number to different texts";
    if (own.size() > longest.size()) longest = std::move(own);
  }
  texts.assign(longest.begin(), longest.end());
  return "";
}

std::string Column::copy(const ArrowCell& cell, std::int64_t* to) const {
  const arrow::Array& values = values_of(cell);
  if (values.type_id() == Type::DICTIONARY) {
    const auto& dictionary = static_cast<const arrow::DictionaryArray&>(values);
    const std::int64_t size = dictionary.dictionary()->length();
    const std::string problem = copy_integers(*dictionary.indices(), cell, to);
    if (!problem.empty()) return problem;
    const bool fits =
        std::all_of(to, to + cell.count, [&](std::int64_t at) { return at >= 0 && at < size; });
    return fits ? "" : "a number that its dictionary does not have (it is damaged)";
  }
  if (values.type_id() == Type::UINT64) {
    const std::uint64_t* from =
        static_cast<const arrow::UInt64Array&>(values).raw_values() + cell.first;
    constexpr auto maximum = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (std::any_of(from, from + cell.count, [](std::uint64_t value) { return value > maximum; }))
      return "an integer above 9223372036854775807";
  }
  return copy_integers(values, cell, to);
}

std::string Column::copy(const ArrowCell& cell, float* to) const {
  return copy_numbers(values_of(cell), cell, to);
}

std::string Column::copy(const ArrowCell& cell, double* to) const {
  return copy_numbers(values_of(cell), cell, to);
}

std::string Column::copy(const ArrowCell& cell, bool* to) const {
  const arrow::Array& values = values_of(cell);
  if (values.type_id() != Type::BOOL)
    return "values of type " + values.type()->ToString() + ", which are not booleans";
  const auto& booleans = static_cast<const arrow::BooleanArray&>(values);
  for (std::int64_t i = 0; i < cell.count; ++i) to[i] = booleans.Value(cell.first + i);
  return "";
}

std::string Column::texts(const ArrowCell& cell, std::vector<std::string_view>& to) const {
  return append_texts(values_of(cell), cell.first, cell.count, to);
}

}  // namespace hasten::arrow_files
