// File: tokenizers/pipeline/token_table.h
// The tokens of a vocabulary and their ids, in both directions.
//
//   TokenTable table({{"a", 0}, {"b", 7}});
//   table.find("b");     // 7
//   table.token(7);      // "b"
//
// Thread rule: immutable once built; any thread. The constructor throws std::bad_alloc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hasten::tokenizers {

std::uint64_t hash_bytes(std::string_view bytes) noexcept;

class TokenTable {
 public:
  static constexpr std::int32_t kNone = -1;

  TokenTable() = default;
  // Tokens must be distinct. Ids must be distinct and not negative.
  explicit TokenTable(const std::vector<std::pair<std::string, std::int32_t>>& tokens);

  std::size_t size() const noexcept { return rows_.size(); }
  // Returns a token and its id. Rows are in the order of the ids; `index` must be below size().
  std::pair<std::string_view, std::int32_t> row(std::size_t index) const noexcept {
    return {text(rows_[index]), rows_[index].id};
  }
  // The largest id plus 1.
  std::int64_t id_end() const noexcept { return id_end_; }
  std::int32_t find(std::string_view token) const noexcept {
    return find(token, hash_bytes(token));
  }
  std::int32_t find(std::string_view token, std::uint64_t hash) const noexcept;
  std::optional<std::string_view> token(std::int32_t id) const noexcept;

 private:
  struct Row {
    std::uint32_t begin;
    std::uint32_t size;
    std::int32_t id;
  };
  std::string_view text(const Row& row) const noexcept {
    return std::string_view(bytes_).substr(row.begin, row.size);
  }

  std::string bytes_;
  std::vector<Row> rows_;  // sorted by id
  // A slot of the hash table (open addressing): a part of the hash, and the row's index plus 1.
  struct Slot {
    std::uint32_t hash;
    std::uint32_t row;
  };
  std::vector<Slot> slots_;
  std::int64_t id_end_ = 0;
};

}  // namespace hasten::tokenizers
