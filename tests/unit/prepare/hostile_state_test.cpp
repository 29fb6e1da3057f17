// The folder of a checkpoint whose files were made to do harm: load_state reads it or refuses it.
// The manifest fits each folder, because an attacker can write it too.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "unit/code_of.h"
#include "unit/memory_directory.h"
#include "unit/prepare/save_state_loop.h"

namespace prepare_hostile_state_test {

using namespace hasten;
using namespace hasten::save_state_loop;

namespace {

// A new file, because tensors may still use the memory of the one that was read.
void replace_file(const fs::path& file, const std::string& bytes) {
  fs::remove(file);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// Changes texts in the ways that a reader of JSON or of tensors may fail to notice.
class Mutations {
 public:
  std::string of(const std::string& file, std::string bytes) {
    if (!ends_with(file, ".safetensors")) return of_text(std::move(bytes));
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    std::string header = bytes.substr(8, length), data = bytes.substr(8 + length);
    if (below(4) == 0 && !data.empty()) {
      data[below(data.size())] = static_cast<char>(below(256));
    } else {
      header = of_text(std::move(header));
    }
    std::string out;
    for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
    return out + header + data;
  }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_);
  }
  std::string of_text(std::string text) {
    static const std::vector<std::string> kValues = {"0",
                                                     "-1",
                                                     "1",
                                                     "2",
                                                     "1e300",
                                                     "9223372036854775807",
                                                     "18446744073709551615",
                                                     "0.5",
                                                     "null",
                                                     "{}",
                                                     "[]",
                                                     "true",
                                                     "\"x\"",
                                                     "[1]",
                                                     "\"F64\"",
                                                     "[[]]",
                                                     "3",
                                                     "\"U8\"",
                                                     "1000000000000"};
    const std::size_t at = below(text.size());
    switch (below(4)) {
      case 0:
        text[at] = "0123456789-.eE\"[]{},: "[below(22)];
        return text;
      case 1:
        return text.erase(at, 1 + below(8));
      case 2:
        return text.insert(at, text.substr(at, 1 + below(8)));
      default: {  // another value instead of a number
        const std::size_t begin = text.find_first_of("0123456789", at);
        if (begin == std::string::npos) return text;
        const std::size_t end = std::min(text.find_first_of(",]} \n", begin), text.size());
        return text.replace(begin, end - begin, kValues[below(kValues.size())]);
      }
    }
  }

  std::mt19937 random_{23};
};

}  // namespace

TEST_CASE("load_state: a state of random numbers that no generator has is refused") {
  const test::MemoryDirectory folder;
  const fs::path state = folder.path() / "state";
  Accelerator accelerator({.cpu = true});
  accelerator.save_state(state);
  // LibTorch would accept this position and read outside of the generator's 624 numbers.
  const at::Tensor outside = at::detail::getDefaultCPUGenerator().get_state();
  const std::int32_t left = 624;
  const std::uint64_t next = 624;
  std::memcpy(outside.mutable_data_ptr<std::uint8_t>() + 8, &left, sizeof left);
  std::memcpy(outside.mutable_data_ptr<std::uint8_t>() + 16, &next, sizeof next);
  for (const at::Tensor& bad : {outside, at::zeros({3}, at::kByte), at::zeros({5056}, at::kByte),
                                at::zeros({5056}, at::kFloat)}) {
    const TensorDict saved = {{"cpu", bad}};
    save_safetensors(state / "random_state.safetensors", saved);
    write_manifest(state);
    CHECK(code_of([&] { accelerator.load_state(state); }) == "checkpoint.random-state");
  }
}

TEST_CASE("load_state: a folder with hostile values is read or refused") {
  const test::MemoryDirectory folder;
  const fs::path state = folder.path() / "state";
  Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  auto rows = make_loader(own_rows(), {.batch_size = 4, .shuffle = true});
  const auto raw_scheduler = cosine(adamw);
  auto [model, optimizer, scheduler, loader] = accelerator.prepare(net, adamw, raw_scheduler, rows);
  std::int64_t micro_batches = 0;
  for (auto& batch : loader) {  // stops inside the second window
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(torch::mse_loss(model(batch.at("x")), batch.at("y")));
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    if (++micro_batches == 4) {
      accelerator.save_state(state);
      break;
    }
  }
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(state)) {
    const std::string name = entry.path().filename().string();
    if (name != kManifestFile) files[name] = read_file(entry.path());
  }
  REQUIRE(files.contains("gradients_0.safetensors"));
  REQUIRE(files.contains("accelerator_state.json"));
  const at::Tensor weight = net->first->weight.detach().clone();

  Mutations mutations;
  int read = 0, refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto file = std::next(files.begin(), i % std::ssize(files));
    const std::string &name = file->first, &bytes = file->second;
    replace_file(state / name, mutations.of(name, bytes));
    CAPTURE(name);
    try {
      write_manifest(state);
      accelerator.load_state(state);
      ++read;
    } catch (const Error&) {
      ++refused;
    } catch (const c10::Error&) {  // LibTorch cannot copy tensors of all types
      ++refused;
    }
    replace_file(state / name, bytes);
  }
  CHECK(read > 50);
  CHECK(refused > 100);
  write_manifest(state);
  accelerator.load_state(state);
  CHECK(at::equal(net->first->weight, weight));
}

}  // namespace prepare_hostile_state_test
