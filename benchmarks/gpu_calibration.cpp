// Measures the rates that the time model of docs/gpu.md needs: matrix products, attention, norms,
// element-wise operators and copies, in float, TF32, bfloat16 and float16. The shapes come from
// BERT, GPT-2 and ResNet, and some sizes are not multiples of a kernel's tile. Prints a JSON line
// for each call; with --gpu the line also has the predicted time for that GPU. Then each of
// LibTorch's kernels for attention computes the same calls, with and without a mask and dropout.
// The last line has the shares of the GPU's peak rates that src/anatomy/gpu_speed.cpp needs.
//
//   $ gpu_calibration [--device cuda|cpu] [--gpu h200] [--seconds 170] [--small]
//
// --small uses small shapes, to try the program on a CPU. Calls that have not begun within
// --seconds are left out. Uses LibTorch's interface for any device, so it compiles without CUDA.
#include <ATen/SDPBackend.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "anatomy/call_time.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/device/cuda_library.h"
#include "named_arguments.h"

namespace {

using namespace hasten;
using Clock = std::chrono::steady_clock;

struct Options {
  at::Device device = at::kCUDA;
  std::string gpu = "h200";
  double seconds = 170;
  bool small = false;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--small") {
      o.small = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--device")
      o.device = at::Device(value);
    else if (flag == "--gpu")
      o.gpu = value;
    else if (flag == "--seconds")
      o.seconds = std::atof(value.c_str());
    else
      std::fprintf(stderr,
                   "gpu_calibration: got %s, expected --device, --gpu, --seconds, --small\n",
                   flag.c_str()),
          std::exit(2);
  }
  return o;
}

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

struct Time {
  double call = 0;  // seconds from one call to the next
  double host = 0;  // seconds that the host needs to submit a call
};

// Returns the shortest time of three series of calls. The calls of a series are submitted without
// waiting. If a call takes longer on the GPU than on the host, the time does not include the host.
Time time_of(const std::function<void()>& call, at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const auto wait = [&] {
    if (!device.is_cpu()) guard.synchronizeDevice(guard.getDevice().index());
  };
  call();
  wait();
  const double before = now();
  call();
  wait();
  constexpr double kRow = 0.015;
  const int count = std::clamp(static_cast<int>(kRow / std::max(now() - before, 1e-7)), 2, 300);
  Time least;
  for (int row = 0; row < 3; ++row) {
    const double began = now();
    for (int i = 0; i < count; ++i) call();
    const double submitted = now();
    wait();
    const Time time{(now() - began) / count, (submitted - began) / count};
    if (row == 0 || time.call < least.call) least = time;
  }
  return least;
}

// One call to measure: the operator's name in the time model, its operands in the order of its
// arguments, its FLOP, the bytes that it moves, and further arguments that affect the time.
struct Call {
  std::string group, name, shape;
  std::vector<at::Tensor> operands;
  std::function<void()> run;
  double flops = 0, bytes = 0;
  const char* overload = "";
  std::map<std::string, c10::IValue> named = {};
};

struct Format {
  const char* name;
  at::ScalarType type;
  bool tf32;
};
constexpr Format kFormats[] = {{"float32", at::kFloat, false},
                               {"tf32", at::kFloat, true},
                               {"bfloat16", at::kBFloat16, false},
                               {"float16", at::kHalf, false}};

void set_tf32(bool is_on) {
  const auto precision = is_on ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  for (const auto operation : {at::Float32Op::MATMUL, at::Float32Op::CONV})
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, operation, precision);
}

// The kernels with which LibTorch can compute attention.
struct AttentionKernel {
  const char* name;
  at::SDPBackend backend;
};
constexpr AttentionKernel kAttentionKernels[] = {
    {"cudnn", at::SDPBackend::cudnn_attention},
    {"flash", at::SDPBackend::flash_attention},
    {"efficient", at::SDPBackend::efficient_attention},
    {"math", at::SDPBackend::math},
};

// While it exists, LibTorch's attention runs in this kernel or throws.
class SelectedAttention {
 public:
  explicit SelectedAttention(at::SDPBackend only) {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      before_[i] = is_allowed(kAttentionKernels[i].backend);
      allow(kAttentionKernels[i].backend, kAttentionKernels[i].backend == only);
    }
  }
  SelectedAttention(const SelectedAttention&) = delete;
  SelectedAttention& operator=(const SelectedAttention&) = delete;
  ~SelectedAttention() {
    for (std::size_t i = 0; i < before_.size(); ++i)
      allow(kAttentionKernels[i].backend, before_[i]);
  }

 private:
  static bool is_allowed(at::SDPBackend kernel) {
    const at::Context& context = at::globalContext();
    if (kernel == at::SDPBackend::cudnn_attention) return context.userEnabledCuDNNSDP();
    if (kernel == at::SDPBackend::flash_attention) return context.userEnabledFlashSDP();
    if (kernel == at::SDPBackend::efficient_attention) return context.userEnabledMemEfficientSDP();
    return context.userEnabledMathSDP();
  }
  static void allow(at::SDPBackend kernel, bool is_on) {
    at::Context& context = at::globalContext();
    if (kernel == at::SDPBackend::cudnn_attention) return context.setSDPUseCuDNN(is_on);
    if (kernel == at::SDPBackend::flash_attention) return context.setSDPUseFlash(is_on);
    if (kernel == at::SDPBackend::efficient_attention) return context.setSDPUseMemEfficient(is_on);
    context.setSDPUseMath(is_on);
  }

  std::array<bool, std::size(kAttentionKernels)> before_{};
};

class Calibration {
 public:
  explicit Calibration(const Options& options)
      : options_(options), gpu_(find_gpu("cuda:" + options.gpu)), speed_(anatomy::speed_of(gpu_)) {}

  void run() {
    for (const Format& format : kFormats) {
      if (format.tf32 && options_.device.is_cpu()) continue;
      format_ = &format;
      if (!options_.device.is_cpu()) set_tf32(format.tf32);
      products();
      if (format.tf32) continue;  // the other calls do not depend on TF32
      attention();
      memory_bound();
    }
    for (const Format& format : kFormats) {
      if (format.tf32 || format.type == at::kHalf) continue;  // fp16 takes as long as bf16
      format_ = &format;
      if (!options_.device.is_cpu()) set_tf32(false);
      compare_attention_kernels();
    }
    print_shares();
  }

 private:
  at::Tensor tensor(at::IntArrayRef sizes) const {
    return at::randn(sizes, at::TensorOptions(options_.device).dtype(at::kFloat))
        .to(format_->type)
        .mul_(0.1);
  }
  double width() const { return static_cast<double>(c10::elementSize(format_->type)); }

  void product(std::int64_t rows, std::int64_t columns, std::int64_t inner, bool transposed) {
    const at::Tensor a = tensor({rows, inner}),
                     b = transposed ? tensor({columns, inner}).t() : tensor({inner, columns});
    measure(
        {.group = "product",
         .name = "aten::mm",
         .shape = str(rows, "x", columns, "x", inner, transposed ? " nt" : " nn"),
         .operands = {a, b},
         .run = [a, b] { (void)at::mm(a, b); },
         .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) *
                  static_cast<double>(inner),
         .bytes = width() * static_cast<double>(rows * inner + inner * columns + rows * columns)});
  }

  void batched(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    const at::Tensor a = tensor({batch, rows, inner}), b = tensor({batch, inner, columns});
    measure({.group = "batched product",
             .name = "aten::bmm",
             .shape = str(batch, " of ", rows, "x", columns, "x", inner),
             .operands = {a, b},
             .run = [a, b] { (void)at::bmm(a, b); },
             .flops = 2.0 * static_cast<double>(batch * rows) * static_cast<double>(columns) *
                      static_cast<double>(inner),
             .bytes = width() * static_cast<double>(batch) *
                      static_cast<double>(rows * inner + inner * columns + rows * columns)});
  }

  void products() {
    // The tokens per batch, and the layers of BERT-base, GPT-2 and BERT-large as (columns, inner).
    const std::vector<std::int64_t> tokens =
        options_.small ? std::vector<std::int64_t>{64}
                       : std::vector<std::int64_t>{1024, 2048, 8192, 32768};
    using Layer = std::pair<std::int64_t, std::int64_t>;
    const std::vector<Layer> layers =
        options_.small ? std::vector<Layer>{{48, 32}}
                       : std::vector<Layer>{{768, 768},   {3072, 768},  {768, 3072}, {2304, 768},
                                            {1024, 1024}, {4096, 1024}, {1024, 4096}};
    for (const std::int64_t rows : tokens) {
      for (const auto& [columns, inner] : layers) product(rows, columns, inner, true);
    }
    if (options_.small) return batched(4, 16, 16, 8);
    product(8192, 50257, 768, true);  // the head of GPT-2
    product(8192, 30522, 768, true);  // the head of BERT
    product(768, 768, 8192, false);   // the gradient of a weight
    product(4096, 1024, 32768, false);
    // ResNet-50 as products: its 1x1 convolutions at 64 images.
    product(200704, 64, 256, true);
    product(50176, 512, 128, true);
    product(12544, 1024, 256, true);
    product(3136, 2048, 512, true);
    for (const std::int64_t size : {512, 1000, 1024, 2048, 2049, 4096, 4104, 8192, 12288})
      product(size, size, size, false);
    product(1, 768, 768, true);
    product(17, 1001, 513, true);
    product(129, 129, 8192, true);
    batched(48, 512, 512, 64);
    batched(64, 512, 64, 512);
    batched(768, 128, 128, 64);
    batched(96, 1024, 1024, 64);
  }

  // Returns the operator that LibTorch's attention runs on this device.
  static std::string attention_kernel(const std::function<void()>& run, bool is_backward) {
    static std::vector<std::string> seen;
    seen.clear();
    const auto handle = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          const std::string name = function.name();
          if (starts_with(name, "aten::_scaled_dot_product")) seen.push_back(name);
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
    run();
    at::removeCallback(handle);
    for (const std::string& name : seen) {
      if (ends_with(name, "_backward") == is_backward) return name;
    }
    return is_backward ? "composed attention, backward" : "composed attention";
  }

  void attention_of(std::int64_t rows, std::int64_t heads, std::int64_t length, std::int64_t size,
                    bool causal) {
    const auto leaf = [&] { return tensor({rows, heads, length, size}).requires_grad_(); };
    const at::Tensor q = leaf(), k = leaf(), v = leaf();
    const auto forward = [=] { return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal); };
    const at::Tensor out = forward(), gradient = at::ones_like(out);
    const auto backward = [=] {
      (void)torch::autograd::grad({out}, {q, k, v}, {gradient}, /*retain_graph=*/true);
    };
    const double product = 2.0 * static_cast<double>(rows * heads * length) *
                           static_cast<double>(length) * static_cast<double>(size);
    const double bytes = width() * 4 * static_cast<double>(q.numel());
    const std::string shape =
        str(rows, "x", heads, "x", length, "x", size, causal ? " causal" : "");
    const auto run = [forward] {
      const torch::NoGradGuard no_grad;
      (void)forward();
    };
    measure({.group = "attention",
             .name = attention_kernel(run, false),
             .shape = shape,
             .operands = {q, k, v},
             .run = run,
             .flops = 2 * product,
             .bytes = bytes,
             .named = {{"is_causal", causal}}});
    measure({.group = "attention, backward",
             .name = attention_kernel(backward, true),
             .shape = shape,
             .operands = {gradient, q, k, v},
             .run = backward,
             .flops = 5 * product,
             .bytes = 2 * bytes,
             .named = {{"is_causal", causal}}});
  }

  void attention() {
    if (options_.small) return attention_of(2, 2, 16, 8, false);
    attention_of(64, 12, 128, 64, false);
    attention_of(8, 12, 512, 64, false);
    attention_of(4, 16, 512, 64, false);
    attention_of(32, 16, 512, 64, false);
    attention_of(8, 12, 1024, 64, true);
    attention_of(32, 12, 1024, 64, true);
    attention_of(4, 32, 2048, 128, true);
  }

  // The attention of one layer of a model.
  struct AttentionCase {
    const char* model;
    std::int64_t rows, heads, length, size;
    bool is_causal, has_mask;
    double dropout;

    std::string shape() const {
      return str(rows, "x", heads, "x", length, "x", size, is_causal ? " causal" : "",
                 has_mask ? " masked" : "", dropout > 0 ? " dropout" : "");
    }
  };

  // Measures the same calls with each kernel, so that the choice among them can be judged.
  void compare_attention_kernels() {
    if (options_.small) return compare_kernels({"BERT", 2, 2, 16, 8, false, true, 0.1});
    for (const double dropout : {0.0, 0.1}) {
      for (const bool has_mask : {false, true}) {
        compare_kernels({"BERT-base", 64, 12, 128, 64, false, has_mask, dropout});
        compare_kernels({"BERT-large", 4, 16, 512, 64, false, has_mask, dropout});
        compare_kernels({"BERT-large", 32, 16, 512, 64, false, has_mask, dropout});
      }
      compare_kernels({"GPT-2", 8, 12, 1024, 64, true, false, dropout});
      compare_kernels({"GPT-2", 32, 12, 1024, 64, true, false, dropout});
      compare_kernels({"Llama", 4, 32, 2048, 128, true, false, dropout});
    }
  }

  void compare_kernels(const AttentionCase& each) {
    const auto leaf = [&] {
      return tensor({each.rows, each.heads, each.length, each.size}).requires_grad_();
    };
    const at::Tensor q = leaf(), k = leaf(), v = leaf();
    const std::optional<at::Tensor> mask =
        each.has_mask ? std::make_optional(tensor({each.rows, 1, 1, each.length})) : std::nullopt;
    const std::function<at::Tensor()> forward = [=] {
      return at::scaled_dot_product_attention(q, k, v, mask, each.dropout, each.is_causal);
    };
    const std::string chosen = attention_kernel([&] { (void)forward(); }, false);
    for (const AttentionKernel& kernel : kAttentionKernels) {
      if (now() - began_ > options_.seconds) {
        ++left_out_;
        continue;
      }
      const bool is_default = chosen.find(kernel.name) != std::string::npos;
      std::printf(
          R"({"kind": "attention", "name": "%s attention", "backend": "%s", "model": "%s", )"
          R"("shape": "%s", "format": "%s", "is_default": %s, %s})"
          "\n",
          kernel.name, kernel.name, each.model, each.shape().c_str(), format_->name,
          is_default ? "true" : "false", times_of_kernel(kernel, forward, {q, k, v}).c_str());
      std::fflush(stdout);
    }
  }

  // Returns the JSON fields with the seconds of the passes in this kernel, or with the reason why
  // LibTorch does not compute the call in it.
  std::string times_of_kernel(const AttentionKernel& kernel,
                              const std::function<at::Tensor()>& forward,
                              const std::vector<at::Tensor>& inputs) const {
    try {
      const SelectedAttention selected(kernel.backend);
      const Time forth = time_of(
          [&] {
            const torch::NoGradGuard no_grad;
            (void)forward();
          },
          options_.device);
      const at::Tensor out = forward(), gradient = at::ones_like(out);
      const Time back = time_of(
          [&] { (void)torch::autograd::grad({out}, inputs, {gradient}, /*retain_graph=*/true); },
          options_.device);
      return c10::str("\"seconds\": ", forth.call, ", \"backward_seconds\": ", back.call);
    } catch (const std::exception& error) {
      return "\"refused\": \"" + quotable_line(error) + "\"";
    }
  }

  // Returns the first line of the message without characters that JSON would need to escape.
  static std::string quotable_line(const std::exception& error) {
    std::string what = split(error.what(), '\n').front();
    std::replace(what.begin(), what.end(), '"', '\'');
    std::replace(what.begin(), what.end(), '\\', '/');
    return what;
  }

  // Measures an operator that reads and writes `tensors` tensors of the operand's size.
  void stream(const char* name, const at::Tensor& x, double tensors,
              const std::function<void()>& run) {
    measure(streaming(name, x, tensors, run));
  }
  static Call streaming(const char* name, const at::Tensor& x, double tensors,
                        const std::function<void()>& run) {
    return {.group = "memory",
            .name = name,
            .shape = c10::str(x.sizes()),
            .operands = {x},
            .run = run,
            .bytes = tensors * static_cast<double>(x.nbytes())};
  }
  void sum_of_rows(const at::Tensor& x) {
    Call call = streaming("aten::sum", x, 1, [x] { (void)at::sum(x, {0}); });
    call.overload = "dim_IntList";
    call.named = {{"dim", c10::List<std::int64_t>({0})}};
    measure(call);
  }

  void memory_bound() {
    using Size = std::pair<std::int64_t, std::int64_t>;
    const std::vector<Size> sizes =
        options_.small ? std::vector<Size>{{32, 24}}
                       : std::vector<Size>{{2048, 1024}, {8192, 768}, {32768, 4096}};
    for (const auto& [rows, columns] : sizes) {
      const torch::NoGradGuard no_grad;
      const at::Tensor x = tensor({rows, columns}), y = tensor({rows, columns}),
                       weight = tensor({columns}), bias = tensor({columns});
      const auto [normed, mean, scale] = at::native_layer_norm(x, {columns}, weight, bias, 1e-5);
      const at::Tensor p = at::softmax(x, -1), into = at::empty_like(x);
      stream("aten::copy_", x, 2, [=] { into.copy_(x); });
      stream("aten::add", x, 3, [=] { (void)at::add(x, y); });
      stream("aten::mul", x, 3, [=] { (void)at::mul(x, y); });
      stream("aten::gelu", x, 2, [=] { (void)at::gelu(x); });
      stream("aten::gelu_backward", x, 3, [=] { (void)at::gelu_backward(y, x); });
      stream("aten::native_dropout", x, 2.25, [=] { (void)at::native_dropout(x, 0.1, true); });
      sum_of_rows(x);
      stream("aten::_softmax", x, 2, [=] { (void)at::_softmax(x, -1, false); });
      stream("aten::_softmax_backward_data", x, 3,
             [=, type = x.scalar_type()] { (void)at::_softmax_backward_data(y, p, -1, type); });
      stream("aten::native_layer_norm", x, 2,
             [=, n = columns] { (void)at::native_layer_norm(x, {n}, weight, bias, 1e-5); });
      stream("aten::native_layer_norm_backward", x, 3,
             [=, n = columns, mean = mean, scale = scale] {
               (void)at::native_layer_norm_backward(y, x, {n}, mean, scale, weight, bias,
                                                    {true, true, true});
             });
    }
  }

  void measure(const Call& call) {
    if (now() - began_ > options_.seconds) {
      ++left_out_;
      return;
    }
    try {
      print(call, time_of(call.run, options_.device));
    } catch (const std::exception& error) {
      const std::string what = quotable_line(error);
      std::printf(
          R"({"kind": "failed", "name": "%s", "shape": "%s", "format": "%s", "error": "%s"})"
          "\n",
          call.name.c_str(), call.shape.c_str(), format_->name, what.c_str());
    }
    std::fflush(stdout);
  }

  void print(const Call& call, const Time& time) {
    anatomy::CallShapes shapes;
    for (const at::Tensor& each : call.operands) {
      shapes.first.push_back(shapes.inputs.size());
      shapes.inputs.push_back({.sizes = each.sizes().vec(),
                               .numel = each.numel(),
                               .bytes = static_cast<std::int64_t>(each.nbytes()),
                               .type = each.scalar_type()});
    }
    shapes.first.push_back(shapes.inputs.size());
    shapes.values = benchmarks::values_by_name(call.name, call.overload, call.named);
    const double predicted = time_of_call({.name = call.name,
                                           .shapes = shapes,
                                           .flops = call.flops,
                                           .bytes = call.bytes,
                                           .tf32 = format_->tf32},
                                          speed_)
                                 .kernels;
    std::printf(R"({"kind": "call", "group": "%s", "name": "%s", "shape": "%s", "format": "%s", )"
                R"("seconds": %.9g, "host_seconds": %.9g, "flops": %.9g, "bytes": %.9g, )"
                R"("predicted_seconds": %.9g})"
                "\n",
                call.group.c_str(), call.name.c_str(), call.shape.c_str(), format_->name, time.call,
                time.host, call.flops, call.bytes, predicted);
    if (call.group == "product")
      rates_[format_->name].push_back({call.flops, call.flops / time.call});
    if (call.group == "memory" && std::string(call.name) == "aten::add")
      bandwidth_ = std::max(bandwidth_, call.bytes / time.call);
  }

  // Returns the mean rate of the three products with the most FLOP, as docs/gpu.md defines it.
  double rate(const char* format) {
    auto& all = rates_[format];
    std::sort(all.begin(), all.end(), std::greater<>());
    const std::size_t count = std::min<std::size_t>(3, all.size());
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += all[i].second;
    return count > 0 ? sum / static_cast<double>(count) : 0;
  }

  void print_shares() {
    const auto share = [](double rate, double peak) { return peak > 0 ? rate / peak : 0; };
    std::printf(
        R"({"kind": "shares", "gpu": "%s", "float32": %.4g, "tf32": %.4g, "bfloat16": %.4g, )"
        R"("float16": %.4g, "bandwidth": %.4g, "left_out": %d})"
        "\n",
        options_.gpu.c_str(), share(rate("float32"), gpu_.flops_per_second),
        share(rate("tf32"), gpu_.tf32_flops_per_second),
        share(rate("bfloat16"), gpu_.bf16_flops_per_second),
        share(rate("float16"), gpu_.fp16_flops_per_second),
        share(bandwidth_, gpu_.bytes_per_second), left_out_);
  }

  Options options_;
  const Gpu& gpu_;
  anatomy::GpuSpeed speed_;
  const Format* format_ = nullptr;
  std::map<std::string, std::vector<std::pair<double, double>>> rates_;  // (FLOP, FLOP per second)
  double bandwidth_ = 0;
  double began_ = now();
  int left_out_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (!options.device.is_cpu()) load_cuda_library();
    Calibration(options).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_calibration: %s\n", error.what());
    return 1;
  }
}
