#include "process/consensus/store_exchange.h"

#include <algorithm>

#include "hasten/base/text.h"

namespace hasten {
namespace {

// One counter holds the number of answers in its low 32 bits and the number of "no" answers above
// them.
constexpr std::int64_t kNo = std::int64_t{1} << 32;
constexpr const char* kResult = "/result";

std::string text_from(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Marks the keys that exist. Halves the range until all of its keys exist or one key is left.
void mark_existing(c10d::Store& store, const std::vector<std::string>& keys, std::size_t begin,
                   std::size_t end, std::vector<bool>& exist) {
  if (begin == end) return;
  const auto first = keys.begin() + static_cast<std::ptrdiff_t>(begin);
  if (store.check({first, first + static_cast<std::ptrdiff_t>(end - begin)})) {
    std::fill_n(exist.begin() + static_cast<std::ptrdiff_t>(begin), end - begin, true);
    return;
  }
  if (end - begin == 1) return;
  const std::size_t middle = begin + (end - begin) / 2;
  mark_existing(store, keys, begin, middle, exist);
  mark_existing(store, keys, middle, end, exist);
}

}  // namespace

std::string text_at(c10d::Store& store, const std::string& key) {
  return text_from(store.get(key));
}

std::vector<std::string> texts_at(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<std::string> texts;
  for (const auto& bytes : store.multiGet(keys)) texts.push_back(text_from(bytes));
  return texts;
}

std::vector<bool> keys_exist(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<bool> exist(keys.size());
  mark_existing(store, keys, 0, keys.size(), exist);
  return exist;
}

bool is_true_on_all_ranks(c10d::Store& store, const std::string& prefix, std::int64_t size,
                          bool own) {
  const std::string result = prefix + kResult;
  const std::int64_t answers = store.add(prefix + "/answers", own ? 1 : kNo + 1);
  if (answers % kNo == size) store.set(result, answers / kNo == 0 ? "yes" : "no");
  return text_at(store, result) == "yes";
}

// The other ranks' answers never reach the number of ranks, so none of them sets a different
// result.
void set_false_on_all_ranks(c10d::Store& store, const std::string& prefix) {
  store.set(prefix + kResult, "no");
}

std::vector<std::string> gather_texts(c10d::Store& store, const std::string& prefix,
                                      std::int64_t rank, std::int64_t size,
                                      const std::string& own) {
  std::vector<std::string> keys;
  for (std::int64_t each = 0; each < size; ++each) keys.push_back(str(prefix, "/", each));
  store.set(keys[static_cast<std::size_t>(rank)], own);
  return texts_at(store, keys);
}

}  // namespace hasten
