// File: autograd/kept_results.h (internal)
// Selective recomputation keeps the results of a region's expensive operators. The first run stores
// them, and the second run returns them instead of computing them again.
//
//   KeptResults results;
//   { const ResultScope scope(&results, ResultScope::Run::first); fn(); }
//   { const ResultScope scope(&results, ResultScope::Run::second); fn(); }  // no product is computed
//
// A result that is changed in place after it was computed is not kept, but computed again. A result
// with random numbers from inside its kernel is not kept either, because the later random numbers
// would differ. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/operator_calls.h"

namespace hasten {

class KeptResults {
 public:
  // Keeps the results that the operator returned or wrote to its arguments.
  void add(const c10::OperatorHandle& op, std::vector<c10::IValue> values);
  // Returns the values that call `number` returned or wrote, or an empty list if the call has to be
  // computed again. If `moves`, the result is moved out of this object.
  std::vector<c10::IValue> get(std::size_t number, const c10::OperatorHandle& op, bool moves);
  // Discards the results in this memory, which is about to be changed.
  void invalidate(const at::Tensor& tensor);
  // Watches a tensor that leaves the region, because its user may change it in place.
  void watch(const at::Tensor& output);

 private:
  // A tensor that shares its version with `alias`, so that changes in place are noticed.
  struct Watched {
    at::Tensor alias;
    std::uint32_t version = 0;
    static Watched of(const at::Tensor& tensor);
    bool is_unchanged() const;
  };
  struct Result {
    std::string name;
    std::vector<c10::IValue> values;
    std::vector<Watched> watched;
  };
  bool is_valid(const Result& result) const;

  std::vector<Result> results_;
  std::map<const void*, std::vector<std::size_t>> by_storage_;
};

// Returns whether the operator that this thread called last returned a kept result instead of
// computing it. Clears this mark.
bool take_kept_result_mark();

// Keeps or returns the results of this thread's operators.
class [[nodiscard]] ResultScope {
 public:
  enum class Run { first, second };
  // If `results` is null, nothing is kept. In the second run, `before_call` is called before each
  // operator and may throw to end the run there. A kernel may always throw, unlike a hook of a
  // saved tensor.
  ResultScope(KeptResults* results, Run run, std::function<void()> before_call = {});

 private:
  class Interceptor final : public OperatorInterceptor {
   public:
    Interceptor(KeptResults* results, Run run, std::function<void()> before_call)
        : results_(results), run_(run), before_call_(std::move(before_call)) {}
    void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;

   private:
    void run_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack);
    bool run_second(const c10::OperatorHandle& op, torch::jit::Stack* stack);
    void compute(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

    KeptResults* results_;
    Run run_;
    std::function<void()> before_call_;
    std::size_t next_ = 0;
    bool is_inside_ = false;  // inside an operator with a result that is kept as a whole
  };

  Interceptor interceptor_;
  InterceptionScope scope_;
};

}  // namespace hasten
