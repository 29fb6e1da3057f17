// Tests the predicted times of products, operators and steps on a GPU.
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

#include "anatomy/call_time.h"
#include "anatomy/product_time.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/trainer/estimate.h"

namespace anatomy_gpu_time_test {

using namespace hasten;
using anatomy::CallShapes;
using anatomy::GpuSpeed;
using anatomy::NumberFormat;
using anatomy::Product;
using anatomy::TensorShape;

namespace {

// The PCIe cards that NeuSight measured.
const GpuSpeed kV100 = {.compute_capability = 70,
                        .multiprocessors = 80,
                        .float32_products = 13.33e12,
                        .bytes_per_second = 810e9};
const GpuSpeed kA100 = {.compute_capability = 80,
                        .multiprocessors = 108,
                        .float32_products = 16.92e12,
                        .bytes_per_second = 1400e9};

GpuSpeed speed(const char* gpu) { return anatomy::speed_of(find_gpu(gpu)); }

Product batched(double batch, double rows, double columns, double inner) {
  return {.batch = batch, .rows = rows, .columns = columns, .inner = inner, .batched = true};
}

TensorShape tensor(const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  const std::int64_t numel = c10::multiply_integers(sizes);
  return {.sizes = sizes,
          .numel = numel,
          .bytes = numel * static_cast<std::int64_t>(c10::elementSize(type)),
          .type = type};
}

// Returns a call with these tensors as its first arguments.
CallShapes call_of(const std::vector<TensorShape>& tensors) {
  CallShapes shapes{.inputs = tensors};
  for (std::size_t i = 0; i <= tensors.size(); ++i) shapes.first.push_back(i);
  return shapes;
}

anatomy::Report step_of(const char* model, const char* device, bool bf16 = false,
                        std::int64_t rows = 2, std::int64_t length = 128) {
  return estimate({.model = model,
                   .length = length,
                   .arguments = {.per_device_train_batch_size = rows, .bf16 = bf16},
                   .device = device});
}

}  // namespace

TEST_CASE("GPU time: products take the time that was measured on V100 and A100") {
  struct Measured {
    GpuSpeed gpu;
    Product product;
    double milliseconds;
  };
  // From NeuSight's data set. Each measurement includes about 25 microseconds of host time.
  const Measured all[] = {
      {kV100, {.rows = 2048, .columns = 6144, .inner = 1536}, 2.948},
      {kV100, {.rows = 8192, .columns = 4608, .inner = 1536}, 8.574},
      {kV100, {.rows = 1024, .columns = 30522, .inner = 16384}, 73.77},
      {kV100, batched(96, 512, 512, 64), 0.306},
      {kV100, batched(24, 2048, 2048, 64), 1.192},
      {kA100, {.rows = 4096, .columns = 12288, .inner = 2048}, 12.386},
      {kA100, {.rows = 16384, .columns = 1024, .inner = 4096}, 8.524},
      {kA100, {.rows = 65536, .columns = 4096, .inner = 12288}, 413.6},
      {kA100, batched(1024, 1024, 1024, 64), 8.179},
      {kA100, batched(128, 64, 4096, 4096), 31.29},
      {kA100, batched(1024, 1024, 128, 1024), 15.41},
  };
  for (const Measured& each : all) {
    const double predicted = 1e3 * (product_seconds(each.product, each.gpu) + 25e-6);
    CAPTURE(each.milliseconds);
    CAPTURE(predicted);
    CHECK(std::abs(predicted / each.milliseconds - 1) < 0.10);
  }
}

TEST_CASE("GPU time: products take the time that was measured on an H200") {
  struct Measured {
    Product product;
    double microseconds;
  };
  // From benchmarks/results/gpu/h200-2026-11-26.jsonl; the start of the kernel is included.
  constexpr NumberFormat kBf16 = NumberFormat::bfloat16, kFp16 = NumberFormat::float16,
                         kTf32 = NumberFormat::tf32;
  const Measured all[] = {
      {{.rows = 2048, .columns = 4096, .inner = 1024, .format = kBf16}, 25.5},
      {{.rows = 8192, .columns = 768, .inner = 3072, .format = kBf16}, 56.3},
      {{.rows = 32768, .columns = 1024, .inner = 1024, .format = kBf16}, 112.4},
      {{.rows = 32768, .columns = 1024, .inner = 4096, .format = kBf16}, 377.6},
      {{.rows = 4096, .columns = 1024, .inner = 32768, .format = kBf16}, 328.8},
      {{.rows = 8192, .columns = 8192, .inner = 8192, .format = kBf16}, 1618},
      {{.rows = 32768, .columns = 4096, .inner = 1024, .format = kFp16}, 459.2},
      {{.rows = 2048, .columns = 4096, .inner = 1024, .format = kTf32}, 48},
      {{.rows = 32768, .columns = 1024, .inner = 4096, .format = kTf32}, 790.7},
      // Rows that begin at multiples of 4 or 2 bytes.
      {{.rows = 8192, .columns = 30522, .inner = 768, .format = kBf16}, 1594},
      {{.rows = 8192, .columns = 50257, .inner = 768, .format = kBf16}, 7142},
      {{.rows = 8192, .columns = 50257, .inner = 768, .format = kTf32}, 5299},
  };
  for (const Measured& each : all) {
    const double predicted =
        1e6 * (product_seconds(each.product, speed("cuda:h200")) + anatomy::kKernelStart);
    CAPTURE(each.microseconds);
    CAPTURE(predicted);
    CHECK(std::abs(predicted / each.microseconds - 1) < 0.20);
  }
}

TEST_CASE("GPU time: an incomplete wave costs more than its share of the blocks") {
  // The GPU has 108 multiprocessors: each gets one tile of 128 x 128, and then one gets another.
  const Product full = batched(108, 128, 128, 4096), one_more = batched(109, 128, 128, 4096);
  const double ratio = product_seconds(one_more, kA100) / product_seconds(full, kA100);
  CHECK(ratio > 1.4);
  CHECK(ratio <= 2);
  // From Ampere on, a batched product of float fills whole tiles.
  CHECK(product_seconds(batched(32, 1024, 64, 1024), kA100) ==
        doctest::Approx(product_seconds(batched(32, 1024, 128, 1024), kA100)));
}

TEST_CASE("GPU time: a small product with a long inner dimension is divided along it") {
  const Product wide = {.rows = 128, .columns = 128, .inner = 65536};
  const double undivided = product_seconds(batched(1, 128, 128, 65536), kA100);
  CHECK(product_seconds(wide, kA100) < 0.5 * undivided);
}

TEST_CASE("GPU time: the rate depends on the format of the factors") {
  const auto time = [](const char* gpu, NumberFormat format, double columns = 8192) {
    return product_seconds({.rows = 8192, .columns = columns, .inner = 8192, .format = format},
                           speed(gpu));
  };
  for (const char* gpu : {"cuda:a100-80gb", "cuda:h200", "cuda:l4"}) {
    CAPTURE(gpu);
    CHECK(time(gpu, NumberFormat::bfloat16) < time(gpu, NumberFormat::tf32));
    CHECK(time(gpu, NumberFormat::tf32) < time(gpu, NumberFormat::float32));
  }
  // A V100 has no tensor cores for bfloat16.
  CHECK(time("cuda:v100-16gb", NumberFormat::bfloat16) >=
        time("cuda:v100-16gb", NumberFormat::float32) / 2);
  CHECK(time("cuda:v100-16gb", NumberFormat::float16) <
        time("cuda:v100-16gb", NumberFormat::float32) / 3);
  // With an odd number of columns, tensor cores cannot use wide loads.
  CHECK(time("cuda:h200", NumberFormat::bfloat16, 8191) >
        1.5 * time("cuda:h200", NumberFormat::bfloat16));
  CHECK(time("cuda:h200", NumberFormat::float32, 8191) ==
        doctest::Approx(time("cuda:h200", NumberFormat::float32)).epsilon(0.01));
}

TEST_CASE("GPU time: every known GPU sustains less than its peak rates, within limits") {
  for (const Gpu& gpu : gpus()) {
    CAPTURE(gpu.name);
    const GpuSpeed sustained = anatomy::speed_of(gpu);
    CHECK(sustained.bytes_per_second > 0.7 * gpu.bytes_per_second);
    CHECK(sustained.bytes_per_second < gpu.bytes_per_second);
    CHECK(sustained.float32_products > 0.3 * gpu.flops_per_second);
    CHECK(sustained.float32_products < gpu.flops_per_second);
    CHECK((sustained.bfloat16_products > 0) == (gpu.bf16_flops_per_second > 0));
    // GeForce cards boost above the clock of NVIDIA's figure.
    CHECK(sustained.bfloat16_products <= 1.05 * gpu.bf16_flops_per_second);
  }
}

TEST_CASE("GPU time: an operator that moves numbers takes the time of moving them") {
  const CallShapes none;
  const auto time = [&](std::string_view name, double bytes) {
    return time_of_call({.name = name, .shapes = none, .bytes = bytes}, kA100).kernels;
  };
  CHECK(time("aten::gelu", 1.4e9) == doctest::Approx(1e-3 + anatomy::kKernelStart));
  CHECK(time("aten::gelu", 0) == doctest::Approx(anatomy::kKernelStart));
  // The gradient of softmax is two kernels.
  CHECK(time("aten::_softmax_backward_data", 1.4e9) > 2 * time("aten::gelu", 1.4e9));
}

TEST_CASE("GPU time: causal attention computes about half of the scores") {
  const TensorShape heads{
      .sizes = {8, 16, 2048, 64}, .numel = 16777216, .bytes = 33554432, .type = at::kBFloat16};
  CallShapes shapes{.inputs = {heads, heads, heads}, .first = {0, 1, 2, 3, 3, 3}};
  const auto time = [&](bool causal) {
    shapes.values = {{}, {}, {}, 0.0, causal};
    return time_of_call({.name = "aten::_scaled_dot_product_flash_attention",
                         .shapes = shapes,
                         .flops = 4.0 * 8 * 16 * 2048 * 2048 * 64,
                         .bytes = 1},
                        speed("cuda:a100-80gb"))
               .kernels -
           anatomy::kKernelStart;
  };
  CHECK(time(true) / time(false) == doctest::Approx(0.5 + 64.0 / 2048));
}

TEST_CASE("GPU time: packed rows of one length take as long as rows of a batch") {
  const TensorShape batch = tensor({8, 12, 256, 64}, at::kBFloat16),
                    packed = tensor({8 * 256, 12, 64}, at::kBFloat16),
                    statistics = tensor({1}, at::kFloat);
  for (const bool is_causal : {false, true}) {
    CAPTURE(is_causal);
    CallShapes rows = call_of({batch, batch, batch});
    rows.values = {{}, {}, {}, 0.1, is_causal};
    CallShapes texts = call_of({packed, packed, packed, statistics, statistics});
    texts.values = {{}, {}, {}, {}, {}, 256, 256, 0.1, is_causal};
    const auto time = [](const std::string& name, const CallShapes& shapes) {
      const anatomy::OpRule* const rule = anatomy::find_rule(name);
      REQUIRE(rule != nullptr);
      const double flops = anatomy::flops_of(*rule, shapes).value();
      CHECK(flops == 4.0 * 8 * 12 * 256 * 256 * 64);
      return time_of_call({.name = name, .shapes = shapes, .flops = flops}, speed("cuda:a100-80gb"))
          .kernels;
    };
    CHECK(time("aten::_flash_attention_forward", texts) ==
          doctest::Approx(time("aten::_scaled_dot_product_flash_attention", rows)));
  }
  // The memory-efficient operator has its type of mask as a number: 1 is causal.
  const TensorShape floats = tensor({1, 8 * 256, 12, 64}, at::kFloat);
  CallShapes texts = call_of({floats, floats, floats, {}, statistics, statistics});
  const auto time = [&](std::int64_t mask) {
    texts.values = {{}, {}, {}, {}, {}, {}, 256, 256, 0.0, mask};
    return time_of_call({.name = "aten::_efficient_attention_forward",
                         .shapes = texts,
                         .flops = 4.0 * 8 * 12 * 256 * 256 * 64},
                        speed("cuda:a100-80gb"))
               .kernels -
           anatomy::kKernelStart;
  };
  CHECK(time(1) / time(0) == doctest::Approx(0.5 + 64.0 / 256));
}

TEST_CASE("GPU time: attention takes the time that was measured on an H200") {
  struct Measured {
    const char* kernel;
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
    bool causal;
    double dropout;
    double microseconds;
  };
  // From benchmarks/results/gpu/h200-2026-11-26.jsonl. The measurements with dropout are from a
  // step of BERT-large; their time includes the kernels of the operator, but not the gaps between
  // them.
  const Measured all[] = {
      {"cudnn_attention", at::kBFloat16, {32, 16, 512, 64}, false, 0, 89.9},
      {"cudnn_attention", at::kBFloat16, {32, 12, 1024, 64}, true, 0, 153.4},
      {"cudnn_attention", at::kBFloat16, {4, 32, 2048, 128}, true, 0, 259.6},
      {"cudnn_attention", at::kBFloat16, {64, 16, 512, 64}, false, 0.1, 433},
      {"cudnn_attention_backward", at::kBFloat16, {32, 16, 512, 64}, false, 0, 308},
      {"cudnn_attention_backward", at::kBFloat16, {32, 12, 1024, 64}, true, 0, 519.3},
      {"cudnn_attention_backward", at::kBFloat16, {4, 32, 2048, 128}, true, 0, 831.8},
      {"cudnn_attention_backward", at::kBFloat16, {64, 16, 512, 64}, false, 0.1, 772},
      {"efficient_attention", at::kFloat, {32, 16, 512, 64}, false, 0, 1027},
      {"efficient_attention_backward", at::kFloat, {32, 16, 512, 64}, false, 0, 2562},
  };
  for (const Measured& each : all) {
    const std::string name = std::string("aten::_scaled_dot_product_") + each.kernel;
    const bool is_backward = name.ends_with("_backward");
    const TensorShape heads = tensor(each.sizes, each.type);
    CallShapes shapes = call_of({heads, heads, heads, heads});
    const auto schema = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").schema();
    for (const c10::Argument& argument : schema.arguments()) {
      const bool is_dropout = argument.name() == "dropout_p",
                 is_causal = argument.name() == "is_causal";
      shapes.values.push_back(is_dropout  ? c10::IValue(each.dropout)
                              : is_causal ? c10::IValue(each.causal)
                                          : c10::IValue());
    }
    const double scores = static_cast<double>(heads.numel) * static_cast<double>(each.sizes[2]);
    const double predicted =
        1e6 *
        time_of_call({.name = name, .shapes = shapes, .flops = (is_backward ? 10 : 4) * scores},
                     speed("cuda:h200"))
            .kernels;
    CAPTURE(name);
    CAPTURE(each.microseconds);
    CAPTURE(predicted);
    CHECK(std::abs(predicted / each.microseconds - 1) < 0.10);
  }
}

TEST_CASE("GPU time: operators that move numbers take the time that was measured on an H200") {
  struct Measured {
    const char* name;
    CallShapes shapes;
    double bytes;
    double microseconds;
  };
  const auto bf16 = [](std::vector<std::int64_t> sizes) { return tensor(sizes, at::kBFloat16); };
  const auto floats = [](std::vector<std::int64_t> sizes) { return tensor(sizes, at::kFloat); };
  const std::vector<std::int64_t> wide = {32768, 4096}, narrow = {32768, 1024};
  const double mib = 1 << 20;
  CallShapes sum = call_of({bf16(wide)}), narrow_sum = call_of({bf16(narrow)});
  sum.values = narrow_sum.values = {c10::IValue(), c10::List<std::int64_t>({0})};
  // From benchmarks/results/gpu/h200-2026-11-26.jsonl and from a step of BERT-large.
  const Measured all[] = {
      {"aten::add", call_of({bf16(wide), bf16(wide)}), 768 * mib, 185.7},
      {"aten::gelu", call_of({bf16(wide)}), 512 * mib, 170},
      {"aten::gelu", call_of({floats(wide)}), 1024 * mib, 254.1},
      {"aten::gelu_backward", call_of({bf16(wide), bf16(wide)}), 768 * mib, 228.5},
      {"aten::native_dropout", call_of({bf16(wide)}), 576 * mib, 222.6},
      {"aten::_softmax", call_of({bf16(wide)}), 512 * mib, 419.3},
      {"aten::native_layer_norm", call_of({bf16(wide)}), 512 * mib, 199.1},
      {"aten::native_layer_norm", call_of({floats(narrow)}), 256 * mib, 105.1},
      {"aten::sum", sum, 256 * mib, 76.1},
      {"aten::sum", narrow_sum, 64 * mib, 47.7},
      // One of the operands has a different type, or fewer numbers.
      {"aten::copy_", call_of({floats(narrow), bf16(narrow)}), 192 * mib, 97.4},
      {"aten::copy_", call_of({bf16(narrow), floats(narrow)}), 192 * mib, 46.2},
      {"aten::add", call_of({bf16(narrow), floats(narrow)}), 320 * mib, 134.2},
      {"aten::add", call_of({bf16(wide), bf16({4096})}), 512 * mib, 334.1},
  };
  for (const Measured& each : all) {
    const double predicted =
        1e6 * time_of_call({.name = each.name, .shapes = each.shapes, .bytes = each.bytes},
                           speed("cuda:h200"))
                  .kernels;
    CAPTURE(each.name);
    CAPTURE(each.microseconds);
    CAPTURE(predicted);
    CHECK(std::abs(predicted / each.microseconds - 1) < 0.18);
  }
}

TEST_CASE("GPU time: only a sum over rows takes time for each row") {
  const auto time = [](std::int64_t dimension) {
    CallShapes shapes = call_of({tensor({32768, 64}, at::kBFloat16)});
    shapes.values = {c10::IValue(), c10::List<std::int64_t>({dimension})};
    return time_of_call({.name = "aten::sum", .shapes = shapes, .bytes = 4e6}, speed("cuda:h200"))
        .kernels;
  };
  CHECK(time(0) > 4 * time(1));
  CHECK(time(-1) == doctest::Approx(time(1)));
}

TEST_CASE("GPU time: a predicted step has an expected time, a step on the CPU has none") {
  const anatomy::Report report = step_of("bert-base", "cuda:h200", /*bf16=*/true, 64, 128);
  const auto expected = expected_step_time(report);
  REQUIRE(expected.has_value());
  CHECK(expected->kernels > anatomy::min_step_seconds(report));
  CHECK(expected->seconds >= std::max(expected->kernels, expected->host));
  CHECK(expected->seconds <= expected->kernels + expected->host);
  CHECK(expected->uncertainty > 0);
  CHECK(expected->uncertainty < 1);
  CHECK(to_text(report).find("Expected for a step: ") != std::string::npos);
  CHECK(to_json(report).find("\"expected_step\"") != std::string::npos);
  // A step of several seconds has a number of milliseconds without an exponent.
  const std::string slow = to_text(step_of("bert-base", "cuda:t4", /*bf16=*/false, 64, 512));
  CHECK(slow.find("Expected for a step: ") != std::string::npos);
  CHECK_MESSAGE(slow.find("e+03 ms") == std::string::npos, slow);
  const anatomy::Report on_cpu = step_of("bert-base", "cpu");
  CHECK_FALSE(expected_step_time(on_cpu).has_value());
  CHECK(to_text(on_cpu).find("Expected for a step") == std::string::npos);
}

TEST_CASE("GPU time: a faster GPU, fewer rows and tensor cores shorten a step") {
  const auto seconds = [](const char* device, bool bf16, std::int64_t rows) {
    return expected_step_time(step_of("bert-base", device, bf16, rows, 512))->kernels;
  };
  CHECK(seconds("cuda:h200", false, 8) < seconds("cuda:a100-80gb", false, 8));
  CHECK(seconds("cuda:a100-80gb", false, 8) < seconds("cuda:t4", false, 8));
  CHECK(seconds("cuda:h200", true, 8) < 0.5 * seconds("cuda:h200", false, 8));
  CHECK(seconds("cuda:h200", false, 4) < 0.7 * seconds("cuda:h200", false, 8));
}

TEST_CASE("GPU time: the expected time excludes the work that only the first step does") {
  const anatomy::Report report = step_of("bert-base", "cuda:h200");
  std::int64_t fills = 0;
  double seconds = 0;
  for (const anatomy::Operation& each : report.operations) {
    if (each.name != "aten::zero_" || each.phase != anatomy::Phase::optimizer) continue;
    fills += each.count;
    seconds += each.kernel_seconds;
  }
  // The first step creates the moments of AdamW and fills them with zeros.
  CHECK(fills > 0);
  CHECK(seconds == doctest::Approx(0));
}

TEST_CASE("GPU time: decoders are predicted for a GPU") {
  for (const char* model : {"gpt2", "llama-3.2-1b"}) {
    CAPTURE(model);
    const anatomy::Report report = step_of(model, "cuda:h200", /*bf16=*/true, 1, 64);
    CHECK(report.without_formula.empty());
    CHECK(expected_step_time(report).has_value());
  }
}

}  // namespace anatomy_gpu_time_test
