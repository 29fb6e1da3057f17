#include "tokenizers/pipeline/token_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace hasten::tokenizers {

std::uint64_t hash_bytes(std::string_view bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

TokenTable::TokenTable(const std::vector<std::pair<std::string, std::int32_t>>& tokens) {
  for (const auto& [token, id] : tokens) {
    rows_.push_back(
        {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(token.size()), id});
    bytes_ += token;
  }
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.id < b.id; });
  if (!rows_.empty()) id_end_ = std::int64_t{rows_.back().id} + 1;
  slots_.resize(std::bit_ceil(2 * rows_.size() + 2));
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::uint64_t hash = hash_bytes(text(rows_[i]));
    std::size_t at = hash & mask;
    while (slots_[at].row != 0) at = (at + 1) & mask;
    slots_[at] = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(i + 1)};
  }
}

std::int32_t TokenTable::find(std::string_view token, std::uint64_t hash) const noexcept {
  if (slots_.empty()) return kNone;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].row != 0; at = (at + 1) & mask) {
    if (slots_[at].hash != static_cast<std::uint32_t>(hash >> 32)) continue;
    const Row& row = rows_[slots_[at].row - 1];
    if (text(row) == token) return row.id;
  }
  return kNone;
}

std::optional<std::string_view> TokenTable::token(std::int32_t id) const noexcept {
  if (id < 0 || id >= id_end_) return std::nullopt;
  // Ids are dense in most files, so a row's index is usually its id.
  const auto index = static_cast<std::size_t>(id);
  if (index < rows_.size() && rows_[index].id == id) return text(rows_[index]);
  const auto found =
      std::lower_bound(rows_.begin(), rows_.end(), id,
                       [](const Row& row, std::int32_t value) { return row.id < value; });
  return found == rows_.end() || found->id != id ? std::nullopt : std::optional(text(*found));
}

}  // namespace hasten::tokenizers
