#include "tokenizers/trie.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

namespace tokenizers_trie_test {

using hasten::tokenizers::Trie;

TEST_CASE("a trie finds its keys and nothing else") {
  const Trie trie({"play", "playing", "", "p", "\xE4\xB8\xAD"});
  CHECK(trie.find("play") == 0);
  CHECK(trie.find("playing") == 1);
  CHECK(trie.find("") == 2);
  CHECK(trie.find("p") == 3);
  CHECK(trie.find("\xE4\xB8\xAD") == 4);
  CHECK(trie.find("playi") == Trie::kNone);
  CHECK(trie.find("players") == Trie::kNone);
  CHECK(trie.walk("playi") != Trie::kNone);
  CHECK(trie.walk("x") == Trie::kNone);
}

TEST_CASE("an empty trie has no transitions") {
  const Trie trie;
  for (int byte = 0; byte < 256; ++byte)
    CHECK(trie.step(Trie::kRoot, static_cast<char>(byte)) == Trie::kNone);
  CHECK(trie.find("") == Trie::kNone);
}

TEST_CASE("one of several equal keys is found") {
  const std::int32_t found = Trie({"a", "b", "a"}).find("a");
  CHECK((found == 0 || found == 2));
}

TEST_CASE("keys of any bytes and of any length are found") {
  std::mt19937 random(7);
  std::map<std::string, std::int32_t> wanted;
  std::vector<std::string> keys{std::string(100000, '\0')};
  wanted[keys[0]] = 0;
  while (keys.size() < 20000) {
    std::string key;
    for (auto length = random() % 6; length > 0; --length) key += static_cast<char>(random() % 256);
    if (wanted.emplace(key, keys.size()).second) keys.push_back(key);
  }
  const Trie trie(keys);
  std::size_t wrong = 0;
  for (const auto& [key, id] : wanted) wrong += trie.find(key) != id;
  for (int i = 0; i < 100000; ++i) {
    std::string key = keys[random() % keys.size()].substr(0, 8);
    if (!key.empty()) key[random() % key.size()] = static_cast<char>(random());
    const auto found = wanted.find(key);
    wrong += trie.find(key) != (found == wanted.end() ? Trie::kNone : found->second);
  }
  CHECK(wrong == 0);
}

}  // namespace tokenizers_trie_test
