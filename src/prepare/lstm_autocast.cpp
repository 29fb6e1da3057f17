#include "prepare/lstm_autocast.h"

#include <ATen/Context.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <tuple>

#include "base/environment_variable.h"
#include "hasten/base/text.h"
#include "prepare/cpu_instructions.h"

namespace hasten {
namespace {

// Returns whether oneDNN may use AVX-512. It takes the older of the two variables only if the newer
// one is not set.
bool may_use_avx512() {
  std::string limit = environment_variable("ONEDNN_MAX_CPU_ISA");
  if (limit.empty()) limit = environment_variable("DNNL_MAX_CPU_ISA");
  limit = lower(limit);
  const bool is_older_avx = starts_with(limit, "avx") && limit.find("512") == std::string::npos;
  return !is_older_avx && !starts_with(limit, "sse41");
}

// LibTorch reads the switch for oneDNN at each call, and the switch belongs to the process. Calls
// of several threads may overlap, so the last of them sets it back.
class WithoutOneDnn {
 public:
  WithoutOneDnn() {
    const std::lock_guard lock(mutex());
    if (users()++ > 0) return;
    before() = at::globalContext().userEnabledMkldnn();
    at::globalContext().setUserEnabledMkldnn(false);
  }
  WithoutOneDnn(const WithoutOneDnn&) = delete;
  WithoutOneDnn& operator=(const WithoutOneDnn&) = delete;
  ~WithoutOneDnn() {
    const std::lock_guard lock(mutex());
    if (--users() == 0) at::globalContext().setUserEnabledMkldnn(before());
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static int& users() {
    static int number = 0;
    return number;
  }
  static bool& before() {
    static bool is_enabled = true;
    return is_enabled;
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_without_onednn(
    c10::DispatchKeySet keys, const at::Tensor& input, at::TensorList states,
    at::TensorList parameters, bool has_biases, std::int64_t layers, double dropout, bool train,
    bool bidirectional, bool batch_first) {
  const WithoutOneDnn scope;
  // The operators inside stay under autocast, because only this call leaves it.
  return at::_ops::lstm_input::redispatch(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::AutocastCPU),
      input, states, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
}

}  // namespace

bool has_lstm_kernel(at::ScalarType type) {
#if defined(__x86_64__)
  static const bool has_bf16 = may_use_avx512() && has_cpu_instructions({"avx512bw"}),
                    has_fp16 =
                        may_use_avx512() && has_cpu_instructions({"avx512_fp16", "amx_fp16"});
  return type == at::kHalf ? has_fp16 : has_bf16;
#else
  return true;
#endif
}

void replace_lstm_under_autocast() {
  static const torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCPU, __FILE__,
                        __LINE__);
    made.impl("lstm.input", TORCH_FN(lstm_without_onednn));
    return made;
  }();
}

}  // namespace hasten
