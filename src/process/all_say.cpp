#include "process/all_say.h"

#include <algorithm>

#include "hasten/base/text.h"

namespace hasten {

std::string text_at(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> words_of_all(c10d::Store& store, const std::string& question,
                                      std::int64_t rank, std::int64_t size,
                                      const std::string& own) {
  const auto key = [&](std::int64_t of) { return str(question, "/", of); };
  store.set(key(rank), own);
  std::vector<std::string> words;
  for (std::int64_t each = 0; each < size; ++each) words.push_back(text_at(store, key(each)));
  return words;
}

bool all_say(c10d::Store& store, const std::string& question, std::int64_t rank, std::int64_t size,
             bool own) {
  const auto words = words_of_all(store, question, rank, size, own ? "yes" : "no");
  return std::count(words.begin(), words.end(), "yes") == size;
}

}  // namespace hasten
