// A libFuzzer target for the state of a run in a checkpoint: training_position.json, the hash
// chain, optimizer.safetensors, the gradients of an open window, trainer_state.json, the optimizer
// and the schedule that Python has saved, and the parts of accelerator_state.json that can be read
// without an Accelerator. CMakeLists.txt builds it with LibTorch, whose libraries are not
// instrumented.
//
// The lowest three bits of the first byte select the file, and the next three the optimizer that
// takes the state. The target computes the hash of a link, the length of a header and the checksums
// of an archive, so that the fuzzer need not guess them.
#include <torch/optim.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/strict_json.h"
#include "checkpoint/adamw_class.h"
#include "checkpoint/elastic_position.h"
#include "checkpoint/gradient_state.h"
#include "checkpoint/loss_scale_position.h"
#include "checkpoint/optimizer_options.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/run_record.h"
#include "hasten/base/error.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/checkpoint/pytorch_optimizer.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/detail/trainer_state.h"
#include "parsed_file.h"
#include "prepare/state_files.h"
#include "zip_bytes.h"

// The target makes no hasten::AdamW, so that it does not link the class and its kernels.
bool hasten::is_hasten_adamw(const torch::optim::Optimizer& /*optimizer*/) { return false; }

namespace {

using namespace hasten;
namespace fs = std::filesystem;
using Json = nlohmann::json;

const fuzz::MemoryFolder& folder() {
  static const fuzz::MemoryFolder made;
  return made;
}

// Returns the text as the line of a link with its hash.
std::string with_hash(const std::string& text) {
  Json json = parse_json_or_discard(text);
  if (!json.is_object()) return text;
  json.erase("hash");
  json["hash"] = sha256_of_text(json.dump());
  return json.dump() + "\n";
}

// Returns a file of tensors. The header ends at the first byte 0 of the text, and the data follows.
std::string with_length(const std::string& text) {
  const std::size_t length = std::min(text.find('\0'), text.size());
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes + text.substr(0, length) + text.substr(std::min(length + 1, text.size()));
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(int kind, const at::Tensor& weight) {
  const std::vector<at::Tensor> parameters{weight};
  switch (kind % 6) {
    case 0:
      return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1));
    case 1:
      return std::make_unique<torch::optim::Adam>(parameters);
    case 2:
      return std::make_unique<torch::optim::RMSprop>(parameters);
    case 3:
      return std::make_unique<torch::optim::Adagrad>(parameters);
    case 4:
      return std::make_unique<torch::optim::LBFGS>(parameters);
    default:
      auto adamw = std::make_unique<torch::optim::AdamW>(parameters);
      adamw->param_groups()[0].set_options(std::make_unique<AdamWOptions>());
      return adamw;
  }
}

void read_position(int kind, const std::string& text) {
  folder().write("training_position.json", text);
  static_cast<void>(load_training_position(folder().path()));
  const RunRecord record = load_run_record(folder().path());
  const auto optimizer = make_optimizer(kind, at::ones({2, 3}));
  if (record.options)
    static_cast<void>(continue_options(*optimizer, *record.options, folder().path()));
}

// The accepted lines must be the text of the file.
void read_chain(const std::string& text) {
  std::string again;
  for (const HashLink& link : read_hash_chain(folder().write(kHashChainFile, text)))
    again += line_of(link) + "\n";
  if (!text.starts_with(again)) std::abort();
}

void read_accelerator_state(int kind, const std::string& text) {
  const Json json = parse_json_or_discard(text);
  if (!json.is_object()) return;
  const auto optimizer = make_optimizer(kind, at::ones({2, 3}));
  try {
    static_cast<void>(elastic_of(json));
    static_cast<void>(loss_scale_of(json));
    for (const Json& each : json.at("loaders"))
      static_cast<void>(position_from_json(each, 0, {{"loader.0", at::ones({2})}}));
    for (const Json& each : json.value("windows", Json::array())) {
      for (const Json& window : each) static_cast<void>(window_from_json(window));
    }
    const Json& groups = json.at("optimizers").at(0).at("groups");
    check_options(*optimizer, groups, kStateFile);
    set_options(*optimizer, groups);
  } catch (const Json::exception&) {
  } catch (const JsonError&) {
  }
}

void read_optimizer_state(int kind, const std::string& bytes) {
  const at::Tensor weight = at::ones({2, 3});
  const auto optimizer = make_optimizer(kind, weight);
  const fs::path file = folder().write("optimizer.safetensors", bytes);
  try {
    restore_optimizer(*optimizer, {{"weight", weight}}, load_safetensors(file), file);
  } catch (const c10::Error&) {  // LibTorch cannot copy tensors of all types
  }
}

// The state that was read is written as text, and reading the text must give the same state.
void read_trainer_state(const std::string& text) {
  const auto read = [](const std::string& json) {
    return TrainerState::from_file(folder().write("trainer_state.json", json)).to_json();
  };
  const std::string once = read(text);
  if (read(once) != once) std::abort();
}

void read_pytorch_optimizer(int kind, const std::string& bytes) {
  const auto optimizer = make_optimizer(kind, at::ones({2, 3}));
  try {
    load_pytorch_optimizer(folder().write("optimizer.pt", bytes), *optimizer,
                           {.allow_pickle = true});
  } catch (const c10::Error&) {  // LibTorch cannot copy tensors of all types
  }
}

void read_pytorch_schedule(const std::string& bytes) {
  try {
    static_cast<void>(
        load_pytorch_schedule(folder().write("scheduler.pt", bytes), {.allow_pickle = true}));
  } catch (const c10::Error&) {  // LibTorch has no number for tensors of all types
  }
}

// Gradients that were accepted have the shapes of their parameters.
void read_gradients(const std::string& bytes) {
  const ParameterNames parameters = {{"weight", at::ones({2, 3}).set_requires_grad(true)},
                                     {"table", at::ones({4, 3}).set_requires_grad(true)}};
  const fs::path file = folder().write("gradients_0.safetensors", bytes);
  const TensorDict saved = load_safetensors(file);
  if (saved.empty()) return;
  check_gradients(parameters, saved, file);
  restore_gradients(parameters, saved);
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (gradient.defined() && gradient.sizes() != parameter.sizes()) std::abort();
  }
}

enum File {
  position,
  chain,
  accelerator_state,
  optimizer_state,
  trainer_state,
  pytorch_optimizer,
  pytorch_schedule,
  gradients
};

// Returns the bytes of the file, with the sums and lengths that the fuzzer need not guess.
std::string completed(int file, const std::string& text) {
  switch (file) {
    case chain:
      return with_hash(text);
    case optimizer_state:
    case gradients:
      return with_length(text);
    case pytorch_optimizer:
    case pytorch_schedule:
      return archive_of({{"m/byteorder", "little"},
                         {"m/data.pkl", "\x80\x02" + text},
                         {"m/data/0", std::string(64, '\1')},
                         {"m/data/1", std::string(8, '\0')}});
    default:
      return text;
  }
}

void read_state(int file, int optimizer, const std::string& bytes) {
  switch (file) {
    case position:
      return read_position(optimizer, bytes);
    case chain:
      return read_chain(bytes);
    case accelerator_state:
      return read_accelerator_state(optimizer, bytes);
    case optimizer_state:
      return read_optimizer_state(optimizer, bytes);
    case trainer_state:
      return read_trainer_state(bytes);
    case pytorch_optimizer:
      return read_pytorch_optimizer(optimizer, bytes);
    case pytorch_schedule:
      return read_pytorch_schedule(bytes);
    default:
      return read_gradients(bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int file = data[0] % 8, optimizer = data[0] / 8 % 8;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // The other inputs are used as they are.
  if (data[0] < 64) bytes = completed(file, bytes);
  const bool is_pickle = file == pytorch_optimizer || file == pytorch_schedule;
  const fuzz::MemoryLimit limit((is_pickle ? 8 : 1) * bytes.size());  // as in formats/pickle.h
  try {
    read_state(file, optimizer, bytes);
  } catch (const DataError&) {
  }
  return 0;
}
