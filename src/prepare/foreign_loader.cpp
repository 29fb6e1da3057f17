#include "prepare/foreign_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/accelerator_state.h"
#include "process/consensus/comparison.h"

namespace hasten::detail {
namespace {

// The state that LibTorch saves of its CPU generator, without the tensor around it: swapping states
// back and forth takes less than a microsecond.
struct GeneratorState {
  at::mt19937 engine;
  std::optional<float> next_float = std::nullopt;
  std::optional<double> next_double = std::nullopt;

  bool has_same_engine(const GeneratorState& other) const {
    const at::mt19937_data_pod a = engine.data(), b = other.engine.data();
    return a.seed_ == b.seed_ && a.left_ == b.left_ && a.next_ == b.next_ && a.state_ == b.state_;
  }
};

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

GeneratorState current_state() {
  at::Generator generator = default_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  auto& cpu = *generator.get<at::CPUGeneratorImpl>();
  return {cpu.engine(), cpu.next_float_normal_sample(), cpu.next_double_normal_sample()};
}

GeneratorState exchange_state(const GeneratorState& state) {
  at::Generator generator = default_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  auto& cpu = *generator.get<at::CPUGeneratorImpl>();
  const GeneratorState before = {cpu.engine(), cpu.next_float_normal_sample(),
                                 cpu.next_double_normal_sample()};
  cpu.set_engine(state.engine);
  cpu.set_next_float_normal_sample(state.next_float);
  cpu.set_next_double_normal_sample(state.next_double);
  return before;
}

void draw_number() {
  at::Generator generator = default_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.get<at::CPUGeneratorImpl>()->random();
}

// Returns a different stream of numbers, which is derived from this one.
GeneratorState derive_generator_state(const GeneratorState& state) {
  const at::mt19937_data_pod data = state.engine.data();
  std::string bytes(reinterpret_cast<const char*>(data.state_.data()), sizeof data.state_);
  bytes += str(data.left_, " ", data.next_);
  return {at::mt19937(static_cast<std::uint64_t>(fingerprint(bytes.data(), bytes.size())))};
}

// The number of values that are compared in each step.
constexpr std::int64_t kSamples = 512;
// The relative tolerance. Processes with different numbers of threads may round differently.
constexpr double kTolerance = 1e-3;

// Returns a description of the batches of a step: a fingerprint of sizes, types and whole numbers,
// in two halves that a double holds exactly, and samples of the floating-point numbers.
at::Tensor sample_of(const std::vector<at::Tensor>& tensors) {
  const torch::NoGradGuard no_grad;
  const auto count = static_cast<std::int64_t>(tensors.size());
  const std::int64_t of_each =
      std::max<std::int64_t>(1, kSamples / std::max<std::int64_t>(1, count));
  std::string exact = str(count);
  std::vector<at::Tensor> floating;
  std::int64_t samples = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      exact += " none";
      continue;
    }
    exact += str(" ", static_cast<int>(tensor.scalar_type()), " of");
    for (const std::int64_t size : tensor.sizes()) exact += str(" ", size);
    // For each new shape, taking samples on the device would compile a program.
    const bool readable = tensor.layout() == at::kStrided && !tensor.is_quantized() &&
                          !tensor.is_meta() &&
                          !device_of(tensor.device()).traits().needs_static_shapes;
    if (!readable || tensor.numel() == 0 || samples >= kSamples) continue;
    const at::Tensor flat = tensor.detach().reshape(-1);
    const std::int64_t taken = std::min(of_each, flat.numel());
    // Splits the numbers into equal ranges and takes a sample from each. Its place in the range
    // varies, so that the samples do not all come from one column.
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < taken; ++i) {
      const std::int64_t first = i * flat.numel() / taken, next = (i + 1) * flat.numel() / taken;
      places.push_back(first + i * 7919 % (next - first));
    }
    const at::Tensor here =
        flat.index_select(0, at::tensor(places, at::kLong).to(flat.device())).cpu();
    if (at::isIntegralType(here.scalar_type(), /*includeBool=*/true)) {
      const at::Tensor numbers = here.to(at::kLong);
      exact.append(reinterpret_cast<const char*>(numbers.const_data_ptr()), numbers.nbytes());
    } else {
      const at::Tensor numbers = here.is_complex() ? at::view_as_real(here.resolve_conj()) : here;
      floating.push_back(numbers.to(at::kDouble).reshape(-1).narrow(0, 0, taken));
      samples += taken;
    }
  }
  const auto hash = static_cast<std::uint64_t>(fingerprint(exact.data(), exact.size()));
  at::Tensor sample = at::zeros({2 + kSamples}, at::kDouble);
  sample[0] = static_cast<double>(hash >> 32);
  sample[1] = static_cast<double>(hash & 0xffffffffu);
  if (!floating.empty()) {
    const at::Tensor all = at::cat(floating);
    const std::int64_t kept = std::min(kSamples, all.numel());
    sample.narrow(0, 2, kept).copy_(all.narrow(0, 0, kept));
  }
  return sample;
}

// Returns the first rank whose sample differs from rank 0's, or -1. check_same_text() compares
// texts exactly, but floating-point numbers of different machines may differ within a tolerance.
std::int64_t first_differing_rank(const at::Tensor& samples) {
  const at::Tensor exact = samples.narrow(1, 0, 2), floating = samples.narrow(1, 2, kSamples);
  const at::Tensor size = floating[0].abs().nan_to_num(0.0, 0.0, 0.0).max();
  const double near_zero = kTolerance * size.item<double>();
  for (std::int64_t rank = 1; rank < samples.size(0); ++rank) {
    if (!at::equal(exact[rank], exact[0]) ||
        !at::allclose(floating[rank], floating[0], kTolerance, near_zero, /*equal_nan=*/true))
      return rank;
  }
  return -1;
}

}  // namespace

struct ForeignLoader::Generators {
  std::optional<GeneratorState> own;  // the process's state, while the pass replaces it
  GeneratorState of_pass;
  bool drew = false;
};

ForeignLoader::ForeignLoader(AcceleratorState& state, bool draws)
    : state_(state), generators_(draws ? std::make_unique<Generators>() : nullptr) {}

ForeignLoader::~ForeignLoader() = default;

void ForeignLoader::enter_begin() {
  if (!generators_ || state_.group.size() == 1) return;
  state_.gradients.announcer().require_all_have_data(
      "the start of a pass over a loader that hasten did not make");
  const CallScope scope(state_.group, "start of a pass over a loader that every process reads");
  at::Generator generator = default_generator();
  const at::Tensor state = state_.group.broadcast(generator.get_state());
  if (state_.group.rank() == 0) return;
  generators_->own = current_state();
  generator.set_state(state);
}

void ForeignLoader::leave_begin() {
  if (!generators_) return;
  generators_->of_pass = derive_generator_state(current_state());
  if (generators_->own) exchange_state(*generators_->own);
  generators_->own.reset();
}

void ForeignLoader::enter_read() {
  if (generators_) generators_->own = exchange_state(generators_->of_pass);
}

void ForeignLoader::leave_read() {
  if (!generators_) return;
  GeneratorState after = exchange_state(*generators_->own);
  generators_->own.reset();
  if (after.has_same_engine(generators_->of_pass)) return;
  generators_->of_pass = after;
  if (!generators_->drew && state_.group.rank() == 0) draw_number();
  generators_->drew = true;
}

bool ForeignLoader::compares() const {
  if (state_.group.size() == 1) return false;
  // Inside join_uneven_inputs processes may be at different steps, so only the first batches are
  // compared. Batches of containers are not compared, because containers draw no random numbers.
  if (state_.gradients.is_in_join()) return generators_ && !compared_;
  return !compared_ || state_.group.compares_calls();
}

void ForeignLoader::compare(const std::vector<at::Tensor>& tensors) {
  compared_ = true;
  const CallScope scope(state_.group,
                        "comparison of the batches of a loader that every process reads");
  const std::int64_t rank =
      first_differing_rank(state_.group.gather(sample_of(tensors).unsqueeze(0)));
  if (rank < 0) return;
  throw UsageError(
      "prepare.batches-differ",
      {.what = str("a loader that hasten did not make, on rank ", rank),
       .got = "batches that differ from those of rank 0",
       .expected = "the same batches in every process, of which each process keeps its own",
       .hint =
           "use hasten::make_loader(dataset, ...), which accepts torch::data's datasets and splits "
           "their rows in the same order everywhere. A sampler with its own random engine needs "
           "the same seed in every process, and worker threads must not draw random numbers. If "
           "each process is meant to read its own batches, do not prepare() the loader"});
}

}  // namespace hasten::detail
