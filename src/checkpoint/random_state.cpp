#include "checkpoint/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

std::vector<NamedGenerator> all_generators() {
  std::vector<NamedGenerator> all;
  for (const Device* device : all_devices()) {
    for (NamedGenerator& each : device->generators()) all.push_back(std::move(each));
  }
  return all;
}

// Serializes a state. Machines have different numbers of GPUs, so bytes are sent instead of
// tensors.
std::string serialize_state(const TensorDict& state) {
  Json json = Json::object();
  for (const auto& [name, tensor] : state) {
    const at::Tensor bytes = tensor.contiguous();
    const std::uint8_t* first = bytes.const_data_ptr<std::uint8_t>();
    json[name] = Json::binary(Json::binary_t::container_type(first, first + bytes.numel()));
  }
  std::string serialized;
  Json::to_cbor(json, serialized);
  return serialized;
}

TensorDict deserialize_state(const std::string& serialized) {
  TensorDict state;
  const Json json = Json::from_cbor(serialized);
  for (const auto& [name, value] : json.items()) {
    const auto& bytes = value.get_binary();
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<std::uint8_t>());
    state[name] = tensor;
  }
  return state;
}

// True if LibTorch would read outside of the table of a CPU generator. The generator uses the
// number at `next` and those after it, until `left` of them are used. LibTorch checks each of the
// two when it sets a state, but not their sum.
bool reads_outside_table(const at::Generator& generator) {
  const at::mt19937_data_pod data = generator.get<at::CPUGeneratorImpl>()->engine().data();
  return data.left_ + static_cast<std::int64_t>(data.next_) > at::MERSENNE_STATE_N + 1;
}

std::string prefix_of(std::int64_t rank) { return rank == 0 ? "" : str("rank", rank, "."); }

}  // namespace

TensorDict random_state() {
  TensorDict out;
  for (const NamedGenerator& each : all_generators())
    out[each.name] = each.generator.get_state().cpu();
  return out;
}

void restore_generator(at::Generator generator, const TensorDict& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) return;
  const auto throw_bad_state = [&](const std::string& got) {
    throw DataError("checkpoint.random-state",
                    {.what = "the saved state of the generator " + name,
                     .got = got,
                     .expected = "a state that LibTorch has saved for such a generator",
                     .hint = "resume from another checkpoint"});
  };
  try {
    if (generator.device().is_cpu()) {
      at::Generator other = at::detail::createCPUGenerator();
      other.set_state(found->second.clone());
      if (reads_outside_table(other))
        throw_bad_state("a position outside of the generator's table of numbers");
    }
    generator.set_state(found->second.clone());
  } catch (const c10::Error& error) {
    throw_bad_state(error.what_without_backtrace());
  }
}

void restore_random_state(const TensorDict& state) {
  // Throws if it is missing: every process has this state.
  static_cast<void>(tensor_at(state, "cpu"));
  // A run may continue on more GPUs than it began with, or on a TPU that it began without. Such a
  // device's generator then keeps its own state.
  for (const NamedGenerator& each : all_generators())
    restore_generator(each.generator, state, each.name);
}

std::vector<TensorDict> random_states(const Group& group) {
  if (group.size() == 1) return {random_state()};
  std::vector<TensorDict> states;
  for (const std::string& serialized : group.gather_object(serialize_state(random_state())))
    states.push_back(deserialize_state(serialized));
  return states;
}

TensorDict merge_random_states(const std::vector<TensorDict>& of_ranks) {
  TensorDict out;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const auto& [name, tensor] : of_ranks[rank])
      out[prefix_of(static_cast<std::int64_t>(rank)) + name] = tensor;
  }
  return out;
}

TensorDict random_state_of(const TensorDict& merged, std::int64_t rank) {
  const std::string prefix = prefix_of(rank);
  TensorDict out;
  for (const auto& [name, tensor] : merged) {
    const bool own = rank == 0 ? !starts_with(name, "rank") : starts_with(name, prefix);
    if (own) out[name.substr(prefix.size())] = tensor;
  }
  return out;
}

}  // namespace hasten
