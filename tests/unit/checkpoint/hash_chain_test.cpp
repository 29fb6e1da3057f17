// The hash chain of a run as a file: every changed bit is found, and two runs are compared.
#include "hasten/checkpoint/hash_chain.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace checkpoint_hash_chain_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

TensorDict weights_of_step(std::int64_t step) {
  return {{"a", at::full({3, 2}, static_cast<double>(step))}, {"b", at::arange(4)}};
}

// Returns the links up to step 30.
HashChain links_every(std::int64_t steps) {
  HashChain chain;
  std::string previous = first_hash();
  for (std::int64_t step = steps; step <= 30; step += steps) {
    HashLink link{.step = step,
                  .previous = previous,
                  .rows = std::string(64, 'a'),
                  .loss = 1.0 / static_cast<double>(step),
                  .weights = tensor_hashes(weights_of_step(step)),
                  .optimizer = tensor_hashes({{"a.exp_avg", at::ones({2})}})};
    previous = hash_of(link);
    chain.push_back(link);
  }
  return chain;
}

HashChain three_links() { return links_every(10); }

std::string text_of(const HashChain& chain) {
  std::string text;
  for (const HashLink& link : chain) text += line_of(link) + '\n';
  return text;
}

// Writes the chain to a run's folder. Each link gets the hash of the previous link.
void write_run(const fs::path& folder, HashChain chain) {
  fs::create_directories(folder);
  std::string previous = first_hash();
  for (HashLink& link : chain) {
    link.previous = previous;
    previous = hash_of(link);
  }
  write_file_atomically(folder / kHashChainFile, text_of(chain));
}

}  // namespace

TEST_CASE("hash chain: a file reads back equal, with a loss that is not finite") {
  const TemporaryDirectory folder;
  HashChain chain = three_links();
  chain[2].loss = std::nan("");
  const fs::path file = folder.path() / kHashChainFile;
  write_file_atomically(file, text_of(chain) + "{\"half a li");
  const HashChain read = read_hash_chain(file);
  REQUIRE(read.size() == 3);
  CHECK(text_of(read) == text_of(chain));
  CHECK(std::isnan(read[2].loss));
}

TEST_CASE("hash chain: every changed bit of a line is found, and a line that is missing") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / kHashChainFile;
  const std::string text = text_of(three_links());
  std::size_t lines = 0, found = 0, bits = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n') {
      ++lines;
      continue;
    }
    std::string changed = text;
    changed[at] ^= static_cast<char>(1 << at % 8);
    if (changed[at] == '\n') continue;  // this change splits the line
    std::ofstream(file, std::ios::binary | std::ios::trunc) << changed;
    ++bits;
    if (code_of([&] { read_hash_chain(file); }) == "checkpoint.broken-chain") ++found;
  }
  CHECK(lines == 3);
  CHECK(found == bits);
  const std::size_t first = text.find('\n') + 1, second = text.find('\n', first) + 1;
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      << text.substr(0, first) + text.substr(second);
  CHECK(code_of([&] { read_hash_chain(file); }) == "checkpoint.broken-chain");
}

TEST_CASE("hash chain: a tensor's hash depends only on its type, shape and values") {
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  const auto hash = [](const at::Tensor& tensor) { return tensor_hashes({{"t", tensor}}).at("t"); };
  CHECK(hash(matrix) == hash(matrix.t().contiguous().t()));
  CHECK(hash(matrix) != hash(matrix.view({3, 2})));
  CHECK(hash(matrix) != hash(matrix.to(at::kDouble)));
  for (int bit = 0; bit < 32; ++bit) {
    at::Tensor changed = matrix.clone();
    static_cast<std::uint32_t*>(changed.mutable_data_ptr())[4] ^= 1u << bit;
    CHECK(hash(matrix) != hash(changed));
  }
}

TEST_CASE("hash chain: the comparison of two runs names the first different step and tensor") {
  const TemporaryDirectory folder;
  const fs::path a = folder.path() / "a", b = folder.path() / "b";
  HashChain chain = three_links();
  write_run(a, chain);
  write_run(b, chain);
  RunComparison result = compare_runs(a, b);
  CHECK(!result.difference);
  CHECK(result.links == 3);
  CHECK(result.last_step == 30);

  at::Tensor changed = weights_of_step(20).at("a");
  static_cast<std::uint32_t*>(changed.mutable_data_ptr())[5] ^= 1;
  chain[1].weights["a"] = tensor_hashes({{"a", changed}}).at("a");
  write_run(b, chain);
  result = compare_runs(a, b);
  REQUIRE(result.difference);
  CHECK(result.difference->step == 20);
  CHECK(result.difference->part == "tensor \"a\" of the weights");
  CHECK(result.difference->other_parts == 0);
  CHECK(result.links == 1);
  CHECK(!compare_runs(a, b, 21).difference);

  chain[0].rows[0] = 'b';
  write_run(b, chain);
  CHECK(compare_runs(a, b).difference->part == "the rows since the link before");
  CHECK(code_of([&] { compare_runs(a, folder.path() / "c"); }) == "checkpoint.nothing-in-common");
}

TEST_CASE("hash chain: equal runs that were hashed at different intervals are equal") {
  const TemporaryDirectory folder;
  const fs::path a = folder.path() / "a", b = folder.path() / "b";
  HashChain chain = links_every(10), denser = links_every(5);
  for (HashLink& link : denser) link.rows = std::string(64, 'b');  // of the last five steps
  write_run(a, chain);
  write_run(b, denser);
  const RunComparison result = compare_runs(a, b);
  CHECK(!result.difference);
  CHECK(result.links == 3);
  // Other differences at the common steps are found.
  denser[3].loss = 5;
  write_run(b, denser);
  REQUIRE(compare_runs(a, b).difference);
  CHECK(compare_runs(a, b).difference->step == 20);
  CHECK(compare_runs(a, b).difference->part == "the loss");
  // A chain without its first links covers the same steps as the whole chain.
  chain[1].rows = std::string(64, 'b');
  write_file_atomically(b / kHashChainFile, line_of(chain[1]) + '\n');
  CHECK(compare_runs(a, b).difference->part == "the rows since the link before");
}

}  // namespace checkpoint_hash_chain_test
