// Tests a simulated GPU: which kernels LibTorch chooses on it, and how much memory it would use.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <mutex>

#include "anatomy/dry_gpu.h"
#include "anatomy/gpu_recurrent.h"
#include "anatomy/gpu_reduction.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/estimate.h"
#include "unit/code_of.h"

namespace anatomy_dry_gpu_test {

using namespace hasten;
using anatomy::Component;

namespace {

const Gpu& v100() { return find_gpu("cuda:v100-16gb"); }

// Returns the names of the attention operators that ran.
std::set<std::string> attention_on(const std::string& gpu, at::ScalarType type, bool masked,
                                   std::int64_t size = 64) {
  const DryRun dry(find_gpu(gpu));
  static std::set<std::string> seen;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function)
                                     -> std::unique_ptr<at::ObserverContext> {
        const std::string name = function.name();
        if (name.find("attention") != name.npos && name.find("aten::_") == 0) seen.insert(name);
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  const auto leaf = [&] {
    return at::zeros({2, 4, 128, size}, at::TensorOptions().dtype(type).device(at::kCUDA))
        .requires_grad_();
  };
  const std::optional<at::Tensor> mask =
      masked ? std::make_optional(at::zeros({2, 1, 1, 128}, leaf().options().requires_grad(false)))
             : std::nullopt;
  at::scaled_dot_product_attention(leaf(), leaf(), leaf(), mask, 0.1).sum().backward();
  at::removeCallback(handle);
  return seen;
}

}  // namespace

TEST_CASE("dry GPU: it exists in its scope and not after it") {
  CHECK_FALSE(torch::cuda::is_available());
  CHECK_FALSE(device_of(at::kCUDA).is_simulated());
  const std::size_t devices = device_appearances();
  {
    const DryRun dry(v100());
    CHECK(device_of(at::kCUDA).is_simulated());
    CHECK_FALSE(device_of(at::kCPU).is_simulated());
    CHECK(device_appearances() != devices);  // autograd needs a thread for it
    CHECK(torch::cuda::is_available());
    CHECK(DryRun::gpu() == &v100());
    const at::Tensor x = at::ones({3, 4}).to(at::kCUDA);
    CHECK(x.is_cuda());
    CHECK((x + 1).sum().item<float>() == 1.0f);
    CHECK(x.to(at::kCPU).is_cpu());
    CHECK(code_of([] { DryRun second(v100()); }) == "anatomy.two-gpus");
  }
  CHECK_FALSE(torch::cuda::is_available());
  CHECK_FALSE(device_of(at::kCUDA).is_simulated());
  CHECK(device_appearances() == devices);
  CHECK(DryRun::gpu() == nullptr);
  // Autograd runs on the CPU again.
  const at::Tensor x = at::ones({2}).requires_grad_();
  (x * x).sum().backward();
  CHECK(x.grad().sum().item<float>() == 4.0f);
}

TEST_CASE("dry GPU: an operator refuses tensors of several devices, as on a GPU") {
  const DryRun dry(v100());
  const at::Tensor on_gpu = at::ones({4, 4}, at::kCUDA), on_cpu = at::ones({4, 4});
  CHECK(code_of([&] { on_gpu.mm(on_cpu); }) == "anatomy.several-devices");
  CHECK(code_of([&] { on_cpu + on_gpu; }) == "anatomy.several-devices");
  CHECK(code_of([&] { at::cat({on_gpu, on_cpu}); }) == "anatomy.several-devices");
  // LibTorch allows tensors of one number, sources of copies, and indices to be on the CPU.
  CHECK((on_gpu * on_cpu.sum()).is_cuda());
  CHECK(at::empty_like(on_gpu).copy_(on_cpu).is_cuda());
  CHECK(on_gpu.index({at::arange(2)}).is_cuda());
  CHECK(on_cpu.to(at::kCUDA).add(on_gpu).is_cuda());
}

TEST_CASE("dry GPU: the used memory equals nvidia-smi's figure in the documentation") {
  const DryRun dry(v100());
  CHECK(gpu_memory_used() == 0);
  const at::Tensor first = at::ones({1, 1}).to(at::kCUDA);
  const std::int64_t before = *gpu_memory_used();
  CHECK(before == v100().context + (2 << 20));
  const auto model = load_model("bert-large", {}).model;
  model->to(at::kCUDA);
  CHECK((*gpu_memory_used() - before) / (1 << 20) == 2631 - 1343);
}

TEST_CASE("dry GPU: memory is freed, and the cache is returned") {
  const DryRun dry(v100());
  {
    at::Tensor x = at::empty({64 << 20}, at::TensorOptions().device(at::kCUDA));
    CHECK(*gpu_memory_used() == v100().context + (256 << 20));
    x = at::Tensor();
    CHECK(*gpu_memory_used() == v100().context + (256 << 20));  // kept in the cache
  }
  empty_device_cache();
  CHECK(*gpu_memory_used() == v100().context);
}

TEST_CASE("dry GPU: the attention kernel is the one that LibTorch chooses on that generation") {
  using Names = std::set<std::string>;
  const auto pair = [](const std::string& name) {
    return Names{"aten::_scaled_dot_product_" + name + "_attention",
                 "aten::_scaled_dot_product_" + name + "_attention_backward"};
  };
  CHECK(attention_on("cuda:v100-16gb", at::kFloat, false) == pair("efficient"));
  CHECK(attention_on("cuda:a100-40gb", at::kFloat, true) == pair("efficient"));
  CHECK(attention_on("cuda:a100-40gb", at::kBFloat16, false) == pair("flash"));
  CHECK(attention_on("cuda:a100-40gb", at::kBFloat16, true) == pair("efficient"));
  CHECK(attention_on("cuda:h100-80gb", at::kBFloat16, true) == pair("cudnn"));
  CHECK(attention_on("cuda:rtx4090", at::kBFloat16, false) == pair("flash"));
  CHECK(attention_on("cuda:rtx4090", at::kBFloat16, false, 256)
            .count("aten::_scaled_dot_product_attention_math") == 0);
  // The kernels of older GPUs do not support bfloat16.
  const Names math = attention_on("cuda:t4", at::kBFloat16, false);
  CHECK(math.count("aten::_scaled_dot_product_efficient_attention") == 0);
}

namespace {

// An argument of an operator: the shape, type and device of a tensor, or another value.
struct Argument {
  std::vector<std::int64_t> sizes = {};
  at::ScalarType type = at::kFloat;
  bool is_on_gpu = false;
  c10::IValue value = {};
};

// An operator for packed rows and its arguments.
struct PackedCall {
  std::string name;
  std::vector<Argument> arguments;
};

// Keeps no tensor, because it would outlive the dry run.
std::vector<Argument> described(c10::ArrayRef<const c10::IValue> inputs) {
  std::vector<Argument> out;
  for (const c10::IValue& each : inputs) {
    if (each.isTensor()) {
      const at::Tensor& x = each.toTensor();
      out.push_back({.sizes = x.sizes().vec(), .type = x.scalar_type(), .is_on_gpu = x.is_cuda()});
    } else {
      out.push_back({.value = each});
    }
  }
  return out;
}

// Returns the calls of LibTorch's operators for packed rows in a forward and a backward pass of
// attention. The rows have 5, 3 and 8 tokens, 4 heads, and `key_heads` heads of keys and values.
std::vector<PackedCall> packed_calls(const std::string& gpu, at::ScalarType type, bool is_causal,
                                     std::int64_t key_heads, std::int64_t size = 64) {
  const DryRun dry(find_gpu(gpu));
  static std::vector<PackedCall> seen;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            const std::string name = function.name();
            if (name.find("aten::_flash_attention_") == 0 || name.find("aten::_efficient_att") == 0)
              seen.push_back({name, described(function.inputs())});
            return nullptr;
          })
          .scopes({at::RecordScope::FUNCTION})
          .needsInputs(true));
  const at::TensorOptions options = at::TensorOptions().device(at::kCUDA).dtype(type);
  const auto leaf = [&](std::int64_t heads) {
    return at::zeros({1, 16, heads * size}, options).requires_grad_();
  };
  const ops::KeyMask rows =
      ops::KeyMask::packed({5, 3, 8}, at::zeros({4}, options.dtype(at::kInt)));
  const at::Tensor q = leaf(4), k = leaf(key_heads), v = leaf(key_heads);
  const at::Tensor out = ops::attention(q, k, v, is_causal ? rows.causal() : rows,
                                        ops::AttentionHeads(4, key_heads, 0.5), 0.1,
                                        /*training=*/true);
  CHECK(out.sizes() == q.sizes());
  CHECK((out.scalar_type() == type));
  out.sum().backward();
  at::removeCallback(handle);
  for (const at::Tensor& each : {q, k, v}) CHECK(each.grad().sizes() == each.sizes());
  return seen;
}

}  // namespace

TEST_CASE("dry GPU: FlashAttention gets packed rows as its operator expects them") {
  using Sizes = std::vector<std::int64_t>;
  for (const bool is_causal : {false, true}) {
    CAPTURE(is_causal);
    const auto calls = packed_calls("cuda:a100-80gb", at::kBFloat16, is_causal, 2);
    REQUIRE(calls.size() == 2);
    CHECK(calls[0].name == "aten::_flash_attention_forward");
    const auto& forward = calls[0].arguments;
    CHECK(forward[0].sizes == Sizes{16, 4, 64});
    CHECK(forward[1].sizes == Sizes{16, 2, 64});
    CHECK(forward[2].sizes == Sizes{16, 2, 64});
    for (const auto bounds : {std::size_t{3}, std::size_t{4}}) {
      CHECK(forward[bounds].sizes == Sizes{4});
      CHECK((forward[bounds].type == at::kInt));
      CHECK(forward[bounds].is_on_gpu);
    }
    CHECK(forward[5].value.toInt() == 8);
    CHECK(forward[6].value.toInt() == 8);
    CHECK(forward[7].value.toDouble() == 0.1);
    CHECK(forward[8].value.toBool() == is_causal);
    CHECK_FALSE(forward[9].value.toBool());
    CHECK(forward[10].value.toDouble() == 0.5);
    CHECK(calls[1].name == "aten::_flash_attention_backward");
    const auto& backward = calls[1].arguments;
    CHECK(backward[0].sizes == Sizes{16, 4, 64});
    CHECK(backward[5].sizes == Sizes{4, 16});  // the logarithm of the sum for each token
    CHECK(backward[8].value.toInt() == 8);
    CHECK(backward[11].value.toBool() == is_causal);
    CHECK((backward[12].type == at::kUInt64));
  }
}

TEST_CASE("dry GPU: the memory-efficient kernel gets packed rows as its operator expects them") {
  using Sizes = std::vector<std::int64_t>;
  for (const bool is_causal : {false, true}) {
    CAPTURE(is_causal);
    const auto calls = packed_calls("cuda:h100-80gb", at::kFloat, is_causal, 2);
    REQUIRE(calls.size() == 2);
    CHECK(calls[0].name == "aten::_efficient_attention_forward");
    const auto& forward = calls[0].arguments;
    // Its keys and values have as many heads as the queries.
    for (std::size_t input = 0; input < 3; ++input)
      CHECK(forward[input].sizes == Sizes{1, 16, 4, 64});
    CHECK(forward[3].value.isNone());
    for (const auto bounds : {std::size_t{4}, std::size_t{5}}) {
      CHECK(forward[bounds].sizes == Sizes{4});
      CHECK((forward[bounds].type == at::kInt));
    }
    CHECK(forward[6].value.toInt() == 8);
    CHECK(forward[7].value.toInt() == 8);
    CHECK(forward[8].value.toDouble() == 0.1);
    CHECK(forward[9].value.toInt() == (is_causal ? 1 : 0));
    CHECK(forward[10].value.toBool());
    CHECK(forward[11].value.toDouble() == 0.5);
    CHECK(calls[1].name == "aten::_efficient_attention_backward");
    const auto& backward = calls[1].arguments;
    CHECK(backward[8].value.toInt() == 8);
    CHECK(backward[10].sizes == Sizes{3, 4, 32});  // by row, padded to 32 tokens
    CHECK(backward[14].value.toInt() == (is_causal ? 1 : 0));
  }
}

TEST_CASE("dry GPU: the operator for packed rows depends on the type and the GPU") {
  const auto first = [](const char* gpu, at::ScalarType type, std::int64_t size = 64) {
    const auto calls = packed_calls(gpu, type, false, 4, size);
    return calls.empty() ? "" : calls.front().name;
  };
  const std::string flash = "aten::_flash_attention_forward",
                    efficient = "aten::_efficient_attention_forward";
  CHECK(first("cuda:h200", at::kBFloat16) == flash);
  CHECK(first("cuda:h200", at::kHalf, 256) == flash);
  CHECK(first("cuda:rtx4090", at::kHalf, 256) == efficient);
  CHECK(first("cuda:t4", at::kHalf) == efficient);
  CHECK(first("cuda:t4", at::kFloat) == efficient);
  // There is no operator for these types and head sizes, so rows are padded in attention.
  CHECK(first("cuda:t4", at::kBFloat16) == "");
  CHECK(first("cuda:h200", at::kBFloat16, 12) == "");
}

TEST_CASE("dry GPU: attention that drops everything uses no kernel that divides by 1 - p") {
  const DryRun dry(find_gpu("cuda:h200"));
  static std::set<std::string> seen;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function)
                                     -> std::unique_ptr<at::ObserverContext> {
        seen.insert(function.name());
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  const at::TensorOptions options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
  const auto leaf = [&] { return at::zeros({1, 16, 256}, options).requires_grad_(); };
  for (const ops::KeyMask& mask :
       {ops::KeyMask({}), ops::KeyMask({}).causal(),
        ops::KeyMask::packed({5, 3, 8}, at::zeros({4}, options.dtype(at::kInt)))}) {
    const at::Tensor q = leaf(), k = leaf(), v = leaf();
    ops::attention(q, k, v, mask, 4, /*p=*/1, /*training=*/true).sum().backward();
    for (const at::Tensor& each : {q, k, v}) CHECK(each.grad().sizes() == each.sizes());
  }
  at::removeCallback(handle);
  CHECK(seen.count("aten::_scaled_dot_product_attention_math") == 1);
  for (const char* const name :
       {"aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention", "aten::_flash_attention_forward",
        "aten::_efficient_attention_forward"})
    CHECK(seen.count(name) == 0);
}

TEST_CASE("dry GPU: packed rows take the memory of LibTorch's kernels") {
  const DryRun dry(find_gpu("cuda:h200"));
  const auto memory = anatomy::DryGpu::active()->memory();
  const at::TensorOptions shorts = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor q = at::empty({1000, 16, 64}, shorts),
                   bounds = at::zeros({5}, at::kCUDA).to(at::kInt);
  const std::int64_t before = memory->allocated();
  const auto [out, log_sum, random, unused, debug] =
      at::_flash_attention_forward(q, q, q, bounds, bounds, 300, 300, 0.1, false, false);
  // Each block is a multiple of 512 bytes: the result, 4 bytes for each head of a token, and two
  // blocks for the state of the random numbers.
  CHECK(memory->allocated() - before == 1000 * 16 * 64 * 2 + 64000 + 2 * 512);
  CHECK(log_sum.sizes() == std::vector<std::int64_t>{16, 1000});
  const std::int64_t held = memory->allocated();
  const auto gradients = at::_flash_attention_backward(out, q, q, q, out, log_sum, bounds, bounds,
                                                       300, 300, 0.1, false, random, unused);
  CHECK(memory->allocated() - held == 3 * 1000 * 16 * 64 * 2);
  // The sums in float have 128 more rows for each of the four texts.
  const std::int64_t sums = 4 * 16 * (1000 + 4 * 128);
  CHECK(memory->peak_allocated() >= held + 3 * 1000 * 16 * 64 * 2 + sums * 65);
  CHECK(std::get<0>(gradients).sizes() == q.sizes());
}

namespace {

// Requires deterministic kernels while it exists.
struct DeterministicKernels {
  DeterministicKernels() { at::globalContext().setDeterministicAlgorithms(true, false); }
  DeterministicKernels(const DeterministicKernels&) = delete;
  DeterministicKernels& operator=(const DeterministicKernels&) = delete;
  ~DeterministicKernels() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

// Returns the most bytes that the backward pass of FlashAttention needs, for `rows` packed rows of
// 256 tokens, or for rows of a batch.
std::int64_t flash_backward_bytes(const std::string& gpu, std::int64_t rows, bool is_packed) {
  const DryRun dry(find_gpu(gpu));
  const auto memory = anatomy::DryGpu::active()->memory();
  const at::TensorOptions shorts = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  constexpr std::int64_t kHeads = 4, kTokens = 256, kSize = 64;
  if (is_packed) {
    const at::Tensor q = at::empty({rows * kTokens, kHeads, kSize}, shorts),
                     bounds = at::zeros({rows + 1}, at::kCUDA).to(at::kInt);
    const auto [out, log_sum, random, unused, debug] =
        at::_flash_attention_forward(q, q, q, bounds, bounds, kTokens, kTokens, 0.0, false, false);
    const std::int64_t held = memory->allocated();
    at::_flash_attention_backward(out, q, q, q, out, log_sum, bounds, bounds, kTokens, kTokens, 0.0,
                                  false, random, unused);
    return memory->peak_allocated() - held;
  }
  const at::Tensor q = at::empty({rows, kTokens, kHeads, kSize}, shorts).transpose(1, 2);
  const auto [out, log_sum, q_bounds, k_bounds, longest_q, longest_k, seed, offset, debug] =
      at::_scaled_dot_product_flash_attention(q, q, q, 0.0, false, false);
  const std::int64_t held = memory->allocated();
  at::_scaled_dot_product_flash_attention_backward(out, q, q, q, out, log_sum, q_bounds, k_bounds,
                                                   kTokens, kTokens, 0.0, false, seed, offset);
  return memory->peak_allocated() - held;
}

}  // namespace

TEST_CASE("dry GPU: the deterministic backward pass of FlashAttention keeps more sums") {
  for (const bool is_packed : {false, true}) {
    CAPTURE(is_packed);
    // The allocator splits all blocks of these sizes, so that no rest counts.
    for (const std::int64_t rows : {1, 3, 64}) {
      CAPTURE(rows);
      const std::int64_t bytes = flash_backward_bytes("cuda:h200", rows, is_packed);
      // A sum in float has 64 numbers for each head of a token; packed rows are 128 tokens apart.
      const std::int64_t sum = rows * (is_packed ? 256 + 128 : 256) * 4 * 64 * 4,
                         sums = (132 + 4 * rows - 1) / (4 * rows);
      const DeterministicKernels deterministic;
      CHECK(flash_backward_bytes("cuda:h200", rows, is_packed) == bytes + (sums - 1) * sum);
    }
  }
}

TEST_CASE("dry GPU: deterministic attention does without cuDNN and split keys") {
  // With heads of 128 numbers, the memory-efficient kernel also sums the gradients of k and v.
  const auto bytes = [] {
    const DryRun dry(find_gpu("cuda:t4"));
    const auto memory = anatomy::DryGpu::active()->memory();
    const at::TensorOptions halfs = at::TensorOptions(at::kCUDA).dtype(at::kHalf);
    const at::Tensor q = at::empty({1, 512, 4, 128}, halfs).transpose(1, 2);
    const auto [out, log_sum, seed, offset] =
        at::_scaled_dot_product_efficient_attention(q, q, q, {}, true);
    const std::int64_t held = memory->allocated();
    at::_scaled_dot_product_efficient_attention_backward(out, q, q, q, {}, out, log_sum, seed,
                                                         offset, 0.0, {true, true, true, false});
    return memory->peak_allocated() - held;
  };
  const std::int64_t split = bytes();
  const DeterministicKernels deterministic;
  // The keys were split into 8 parts of 64. Each part has two sums of 64 x 128 floats for a head.
  CHECK(bytes() == split - 7 * 2 * 4 * 4 * 64 * 128);
  const auto names = attention_on("cuda:h100-80gb", at::kBFloat16, false);
  CHECK(names.count("aten::_scaled_dot_product_flash_attention") == 1);
  CHECK(attention_on("cuda:h100-80gb", at::kBFloat16, true)
            .count("aten::_scaled_dot_product_efficient_attention") == 1);
}

TEST_CASE("dry GPU: sums over many rows need memory for partial sums") {
  // Computed by hand from Reduce.cuh: the gradient of a bias, summed over 2048 rows.
  const auto staging = [](std::int64_t rows, std::int64_t columns, const char* gpu) {
    return anatomy::reduction_buffers(at::empty({rows, columns}, at::kMeta), {0}, find_gpu(gpu))
        .staging;
  };
  for (const char* gpu : {"cuda:v100-16gb", "cuda:a100-80gb", "cuda:rtx4090"}) {
    CHECK(staging(2048, 1024, gpu) == 16777216);
    CHECK(staging(2048, 3072, gpu) == 50331648);
    CHECK(staging(2048, 4096, gpu) == 67108864);
  }
  CHECK(staging(2048, 30522, "cuda:a100-80gb") == 15627264);
  CHECK(staging(2048, 30522, "cuda:h100-80gb") == 23440896);
  CHECK(staging(4, 2, "cuda:a100-80gb") == 0);
  const at::Tensor rows = at::empty({32768, 64}, at::kMeta);
  CHECK(anatomy::reduction_buffers(rows, {-1}, v100()).staging == 0);
  CHECK(anatomy::reduction_buffers(at::empty({2048}, at::kMeta), {}, v100()).staging == 0);
  CHECK(anatomy::reduction_buffers(at::empty({2'000'000}, at::kMeta), {}, v100()).staging > 0);
}

TEST_CASE("dry GPU: a sum in another type copies its operand, unless it widens 16-bit numbers") {
  const DryRun dry(find_gpu("cuda:h200"));
  const auto memory = anatomy::DryGpu::active()->memory();
  const at::Tensor x = at::empty({1024, 256}, at::TensorOptions(at::kCUDA)),
                   shorter = at::empty({1024, 256}, x.options().dtype(at::kBFloat16));
  const std::int64_t before = memory->allocated();
  shorter.sum({1}, /*keepdim=*/false, at::kFloat);
  CHECK(memory->peak_allocated() - before < x.numel());
  x.sum({1}, /*keepdim=*/false, at::kDouble);
  CHECK(memory->peak_allocated() - before >= 8 * x.numel());
}

// Returns the MiB that `call` reserves if the only free block before it has `mebibytes` MiB.
std::int64_t reserved_with_free_block(std::int64_t mebibytes, const std::function<void()>& call) {
  const auto memory = anatomy::DryGpu::active()->memory();
  memory->empty_cache();
  at::empty({mebibytes << 20}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const std::int64_t before = memory->reserved();
  call();
  return (memory->reserved() - before) >> 20;
}

TEST_CASE("dry GPU: a kernel's blocks are taken in the order of LibTorch's kernel") {
  const DryRun dry(find_gpu("cuda:h200"));
  const at::TensorOptions floats(at::kCUDA);
  // The result of the first product takes the free block, so the workspace of cuBLAS needs a
  // segment.
  const at::Tensor a = at::empty({4096, 64}, floats), b = at::empty({64, 2432}, floats);
  at::Tensor product;
  CHECK(reserved_with_free_block(40, [&] { product = at::mm(a, b); }) == 32);
  // The mask has a quarter of the size and takes the free block, so the result needs a segment.
  const at::Tensor x = at::empty({12 << 20}, floats);
  std::tuple<at::Tensor, at::Tensor> dropped;
  CHECK(reserved_with_free_block(50, [&] { dropped = at::native_dropout(x, 0.1, true); }) == 48);
}

TEST_CASE("dry GPU: the norms of many tensors need memory for those of their chunks") {
  const DryRun dry(find_gpu("cuda:h200"));
  const auto memory = anatomy::DryGpu::active()->memory();
  const std::vector<at::Tensor> tensors(300, at::empty({10 << 16}, at::TensorOptions(at::kCUDA)));
  const std::int64_t before = memory->allocated();
  const std::vector<at::Tensor> norms = at::_foreach_norm(tensors);
  REQUIRE(norms.size() == 300);
  CHECK(norms[0].dim() == 0);
  CHECK(memory->allocated() - before == 300 * 512);
  CHECK(memory->peak_allocated() - before == 300 * 512 + 12288);  // 4 bytes for each of 3000 chunks
}

// Returns the operators that a forward and a backward pass of a recurrent layer call.
std::set<std::string> operators_of(const std::function<at::Tensor()>& forward) {
  static std::set<std::string> seen;
  seen.clear();
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                           -> std::unique_ptr<at::ObserverContext> {
                              static std::mutex mutex;
                              const std::lock_guard lock(mutex);
                              seen.insert(function.name());
                              return nullptr;
                            }).scopes({at::RecordScope::FUNCTION}));
  forward().sum().backward();
  at::removeCallback(handle);
  return seen;
}

TEST_CASE("dry GPU: recurrent layers run in cuDNN, or step by step without it") {
  const DryRun dry(find_gpu("cuda:h200"));
  const auto options = [](at::ScalarType type) { return at::TensorOptions(at::kCUDA).dtype(type); };
  // Two layers in both directions: rows 8, length 6, inputs 4, hidden size 5.
  const auto lstm = [&](at::ScalarType type) {
    std::vector<at::Tensor> weights;
    for (const std::int64_t inputs : {4, 4, 10, 10}) {
      const std::vector<std::vector<std::int64_t>> shapes = {{20, inputs}, {20, 5}, {20}, {20}};
      for (const auto& sizes : shapes)
        weights.push_back(at::zeros(sizes, options(type)).requires_grad_());
    }
    const at::Tensor x = at::zeros({8, 6, 4}, options(type)).requires_grad_(),
                     state = at::zeros({4, 8, 5}, options(type));
    const at::Tensor out =
        std::get<0>(at::lstm(x, {state, state}, weights, true, 2, 0.2, true, true, true));
    CHECK(out.sizes() == at::IntArrayRef({8, 6, 10}));
    return out;
  };
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto seen = operators_of([&] { return lstm(type); });
    CHECK(seen.count("aten::_cudnn_rnn") == 1);
    CHECK(seen.count("aten::_cudnn_rnn_backward") == 1);
    CHECK(seen.count("aten::_thnn_fused_lstm_cell") == 0);
  }
  at::globalContext().setUserEnabledCuDNN(false);
  CHECK(operators_of([&] { return lstm(at::kFloat); }).count("aten::_thnn_fused_lstm_cell") == 1);
  at::globalContext().setUserEnabledCuDNN(true);
  // Autocast computes recurrent layers in half, no matter which type it is set to.
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::ScalarType computed = at::kFloat;
  const auto seen = operators_of([&] {
    const at::Tensor out = lstm(at::kFloat);
    computed = out.scalar_type();
    return out;
  });
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::autocast::clear_cache();
  CHECK((computed == at::kHalf));
  CHECK(seen.count("aten::_cudnn_rnn_backward") == 1);
}

TEST_CASE("dry GPU: a recurrent layer reserves cuDNN's memory for the backward pass") {
  constexpr std::int64_t kLstm = 2, kGru = 3;
  const auto close = [](std::int64_t bytes) {
    return doctest::Approx(static_cast<double>(bytes)).epsilon(1e-5);
  };
  // These sizes come from pytorch/pytorch#2895, with the cuDNN of 2017.
  const anatomy::RecurrentSizes sizes{
      .layers = 4, .directions = 1, .hidden = 320, .tokens = 25000, .element_bytes = 4};
  CHECK(static_cast<double>(anatomy::cudnn_reserve_bytes(kLstm, sizes)) == close(736'000'000));
  CHECK(static_cast<double>(anatomy::cudnn_reserve_bytes(kGru, sizes)) == close(864'000'000));
  // An H200 with cuDNN 9: tests/oracle/data/exported/lstm.pt2 with 64 rows of 6 tokens.
  anatomy::RecurrentSizes measured{
      .layers = 2, .directions = 2, .hidden = 5, .tokens = 384, .element_bytes = 4};
  const Gpu& h200 = find_gpu("cuda:h200");
  CHECK(anatomy::cudnn_reserve_bytes(kLstm, measured) == 170'496);
  CHECK(std::abs(anatomy::cudnn_workspace_bytes(kLstm, measured, h200) - 33'841'664) < 10'000);
  measured.element_bytes = 2;
  CHECK(anatomy::cudnn_reserve_bytes(kLstm, measured) == 86'016);
  CHECK(std::abs(anatomy::cudnn_workspace_bytes(kLstm, measured, h200) - 33'698'816) < 10'000);
  CHECK(anatomy::cudnn_dropout_state_bytes(h200) == 6'488'064);
}

TEST_CASE("dry GPU: torch::nn::LSTM runs, with its weights as views of one buffer") {
  const DryRun dry(find_gpu("cuda:h200"));
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 5).num_layers(2));
  lstm->to(at::kCUDA);
  lstm->flatten_parameters();
  const auto weights = lstm->parameters();
  std::int64_t end = 0;
  for (const at::Tensor& weight : weights) {
    CHECK(weight.is_alias_of(weights[0]));
    CHECK(weight.storage_offset() == end);
    end += weight.numel();
  }
  CHECK(static_cast<std::int64_t>(weights[0].storage().nbytes()) == 4 * end);
  const at::Tensor x = at::zeros({6, 8, 4}, at::TensorOptions().device(at::kCUDA));
  const at::Tensor out = std::get<0>(lstm->forward(x));
  CHECK(out.sizes() == at::IntArrayRef({6, 8, 5}));
  out.sum().backward();
  CHECK(weights[0].grad().sizes() == weights[0].sizes());
}

TEST_CASE("dry GPU: grid_sample runs in cuDNN") {
  const DryRun dry(find_gpu("cuda:h200"));
  const auto options = at::TensorOptions().device(at::kCUDA);
  const at::Tensor x = at::zeros({2, 3, 8, 8}, options).requires_grad_(),
                   grid = at::zeros({2, 5, 7, 2}, options).requires_grad_();
  namespace F = torch::nn::functional;
  const auto seen = operators_of([&] {
    const at::Tensor out = F::grid_sample(x, grid, F::GridSampleFuncOptions().align_corners(true));
    CHECK(out.sizes() == at::IntArrayRef({2, 3, 5, 7}));
    return out;
  });
  CHECK(seen.count("aten::cudnn_grid_sampler_backward") == 1);
  CHECK(x.grad().sizes() == x.sizes());
  CHECK(grid.grad().sizes() == grid.sizes());
}

TEST_CASE("dry GPU: cuDNN copies the tensors of a convolution's gradient to channels last") {
  const DryRun dry(find_gpu("cuda:h200"));
  const auto workspace = [](std::int64_t inputs, std::int64_t outputs, std::int64_t size,
                            std::int64_t kernel, std::int64_t stride) {
    const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16);
    const at::Tensor x = at::zeros({64, inputs, size, size}, options).requires_grad_(),
                     weight =
                         at::zeros({outputs, inputs, kernel, kernel}, options).requires_grad_();
    const at::Tensor out = at::conv2d(x, weight, {}, stride, kernel / 2);
    const auto rule = anatomy::find_gpu_workspace("aten::convolution_backward");
    const std::vector<std::int64_t> strides(2, stride), padding(2, kernel / 2), ones(2, 1),
        zeros(2, 0);
    c10::List<bool> mask;
    for (int i = 0; i < 3; ++i) mask.push_back(i < 2);
    const auto stages = rule({out, x, weight, c10::IValue(), strides, padding, ones, false, zeros,
                              std::int64_t{1}, mask},
                             find_gpu("cuda:h200"));
    return stages.empty() ? 0 : (stages[0][0] + 511) / 512 * 512;
  };
  // The blocks of tests/oracle/data/architectures/torchvision_resnet.pt2 on an H200, 64 rows.
  CHECK(workspace(8, 8, 8, 3, 1) == 132'608);
  CHECK(workspace(8, 12, 8, 3, 2) == 100'864);
  CHECK(workspace(12, 12, 4, 3, 1) == 70'656);
  CHECK(workspace(8, 12, 8, 1, 2) == 98'816);
  CHECK(workspace(3, 3, 4, 3, 1) == 34'304);
  CHECK(workspace(3, 12, 4, 1, 1) == 0);
}

TEST_CASE("dry GPU: the prediction of a step includes the memory of the allocator") {
  const auto options = [](const char* device, bool bf16) {
    return EstimateOptions{.model = "bert-base",
                           .length = 128,
                           .arguments = {.per_device_train_batch_size = 8, .bf16 = bf16},
                           .device = device};
  };
  const anatomy::Report report = estimate(options("cuda:v100-16gb", false));
  const anatomy::Memory& memory = report.memory;
  REQUIRE(memory.gpu.has_value());
  CHECK(report.device == "cuda:0");
  CHECK(bytes_of(memory.at_peak, Component::unknown) == 0);
  CHECK(memory.gpu->reserved >= memory.gpu->reserved_at_peak);
  CHECK(memory.gpu->reserved_at_peak >= memory.peak);
  CHECK(memory.gpu->missing == 0);
  // Every block is a multiple of 512 bytes, even the block of a parameter.
  for (const std::int64_t bytes : memory.at_peak) CHECK(bytes % 512 == 0);
  CHECK(bytes_of(memory.at_peak, Component::model_weights) >= 4 * memory.parameters);
  CHECK(bytes_of(memory.at_peak, Component::optimizer_states) >= 8 * memory.parameters);
  CHECK(report.without_formula.empty());
  CHECK(estimate(options("cuda:h100-80gb", true)).without_formula.empty());
  CHECK(estimate(options("cuda:a100-40gb", true)).without_formula.empty());
  CHECK(estimate(options("cuda:v100-16gb", true)).without_formula.empty());
}

TEST_CASE("dry GPU: a report names the kernels in which attention runs") {
  using Kernels = std::map<std::string, std::int64_t>;
  const auto report = [](const char* device, bool bf16, AttentionImplementation attention) {
    return estimate({.model = "bert-base",
                     .attn_implementation = attention,
                     .length = 64,
                     .arguments = {.per_device_train_batch_size = 2, .bf16 = bf16},
                     .device = device});
  };
  constexpr auto sdpa = AttentionImplementation::sdpa;
  // Two steps with twelve layers each.
  const anatomy::Report on_h100 = report("cuda:h100-80gb", true, sdpa);
  CHECK(attention_kernels(on_h100) == Kernels{{"cudnn", 24}});
  CHECK(to_text(on_h100).find("Attention kernels: cudnn (24 calls).") != std::string::npos);
  CHECK(to_json(on_h100).find("\"attention_kernels\": {\n  \"cudnn\": 24") != std::string::npos);
  CHECK(attention_kernels(report("cuda:v100-16gb", false, sdpa)) == Kernels{{"efficient", 24}});
  CHECK(attention_kernels(report("cuda:h100-80gb", true, AttentionImplementation::eager)).empty());
}

TEST_CASE("dry GPU: a step that does not fit is reported with the missing amount") {
  const anatomy::Report report = estimate({.model = "bert-large",
                                           .length = 512,
                                           .arguments = {.per_device_train_batch_size = 64},
                                           .device = "cuda:t4"});
  CHECK(report.memory.gpu->missing > (std::int64_t{10} << 30));
  CHECK(to_text(report).find("The step does not fit the Tesla T4") != std::string::npos);
}

TEST_CASE("dry GPU: training frees its memory when its objects are destroyed") {
  const DryRun dry(v100());
  {
    auto net = std::make_shared<torch::nn::LinearImpl>(256, 256);
    net->to(at::kCUDA);
    torch::optim::AdamW optimizer(net->parameters());
    net->forward(at::ones({8, 256}).to(at::kCUDA)).sum().backward();
    optimizer.step();
  }
  empty_device_cache();
  // The product libraries' workspaces stay until the process ends, as on a GPU.
  CHECK(*gpu_memory_used() <= v100().context + (64 << 20));
}

TEST_CASE(
    "dry GPU: LibTorch's AdamW gets the factor of gradients in float, as its kernel reads it") {
  static std::vector<at::ScalarType> types;
  types.clear();
  const DryRun dry(v100());
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call)
                                     -> std::unique_ptr<at::ObserverContext> {
        if (std::string_view(call.name()) != "aten::_fused_adamw_") return nullptr;
        const c10::IValue& factor = call.inputs()[13];
        types.push_back(factor.isTensor() ? factor.toTensor().scalar_type() : at::kByte);
        return nullptr;
      }).needsInputs(true));
  const at::Tensor weight = at::ones({8}, at::kCUDA).requires_grad_();
  AdamW adamw({weight});
  weight.mutable_grad() = at::ones_like(weight).detach();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    adamw.scale_next_step(at::full({}, 0.5, at::TensorOptions(at::kCUDA).dtype(type)));
    adamw.step();
  }
  at::removeCallback(handle);
  REQUIRE(types.size() == 2);
  for (const at::ScalarType type : types) CHECK((type == at::kFloat));
}

TEST_CASE("dry GPU: the error for an unknown device names the nearest name") {
  CHECK(code_of([] { find_gpu("cuda:v100-16g"); }) == "config.unknown-device");
  CHECK(code_of([] { find_gpu("v100-16gb"); }) == "config.unknown-device");
  for (const Gpu& gpu : gpus()) {
    CAPTURE(gpu.name);
    CHECK(gpu.memory > gpu.context);
    CHECK(gpu.bytes_per_second > 1e11);
    CHECK(gpu.multiprocessors > 0);
  }
}

}  // namespace anatomy_dry_gpu_test
