#include "prepare/lstm_autocast.h"

#include <ATen/Context.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/environment_variable.h"
#include "hasten/base/text.h"
#include "machine/cpu_instructions.h"

namespace hasten {
namespace {

// Returns whether the variables that limit oneDNN allow it to use AVX-512. oneDNN reads the second,
// older one only if the first is not set.
bool may_use_avx512() {
  std::string limit = environment_variable("ONEDNN_MAX_CPU_ISA");
  if (limit.empty()) limit = environment_variable("DNNL_MAX_CPU_ISA");
  limit = lower(limit);
  const bool is_older_avx = starts_with(limit, "avx") && limit.find("512") == std::string::npos;
  return !is_older_avx && !starts_with(limit, "sse41");
}

#if defined(__x86_64__)
constexpr bool kIsX86 = true;
#else
constexpr bool kIsX86 = false;
#endif

// Returns whether oneDNN may use one of these instruction sets. True on other processors than x86,
// where an LSTM does not depend on them.
bool has_lstm_instructions(const std::vector<std::string>& names) {
  return !kIsX86 || (may_use_avx512() && has_cpu_instructions(names));
}

// LibTorch reads the switch for oneDNN at each call, and the switch belongs to the process. Calls
// of several threads may overlap, so the last of them sets it back.
class NoOneDnnGuard {
 public:
  NoOneDnnGuard() {
    const std::lock_guard lock(mutex_);
    if (users_++ > 0) return;
    was_enabled_ = at::globalContext().userEnabledMkldnn();
    at::globalContext().setUserEnabledMkldnn(false);
  }
  NoOneDnnGuard(const NoOneDnnGuard&) = delete;
  NoOneDnnGuard& operator=(const NoOneDnnGuard&) = delete;
  ~NoOneDnnGuard() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) at::globalContext().setUserEnabledMkldnn(was_enabled_);
  }

 private:
  static inline std::mutex mutex_;
  static inline int users_ = 0;
  static inline bool was_enabled_ = true;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_without_onednn(
    c10::DispatchKeySet keys, const at::Tensor& input, at::TensorList states,
    at::TensorList parameters, bool has_biases, std::int64_t layers, double dropout, bool train,
    bool bidirectional, bool batch_first) {
  const NoOneDnnGuard scope;
  // The operators inside stay under autocast, because only this call leaves it.
  return at::_ops::lstm_input::redispatch(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::AutocastCPU),
      input, states, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
}

}  // namespace

bool has_lstm_kernel(at::ScalarType type) {
  static const bool has_bf16 = has_lstm_instructions({"avx512bw"}),
                    has_fp16 = has_lstm_instructions({"avx512_fp16", "amx_fp16"});
  return type == at::kHalf ? has_fp16 : has_bf16;
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
