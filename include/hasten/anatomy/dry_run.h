// File: hasten/anatomy/dry_run.h
// The real program without its memory and arithmetic: within a DryRun autograd, modules, optimizers
// and loops are LibTorch's own, but tensors have no pages behind them and operators compute shapes
// alone. An Anatomy listens to it as to a real run, so a step that would take 300 GB is measured on
// a laptop in a second.
//
//   DryRun dry;                                  // before the model is made
//   auto model = std::make_shared<BertForSequenceClassification>(config);
//   ...                                          // the loop as it is, with an Anatomy
//
// DryRun dry(find_gpu("cuda:v100-16gb")) runs the program as on that GPU, on a machine that has
// none: torch::cuda::is_available() is true, tensors on device cuda:0 have their bytes counted by
// LibTorch's caching allocator's rules, and operators are those LibTorch takes there.
//
// Numbers read back (item(), a norm, a comparison) are stand-ins: 1, or true; an Anatomy's report
// tells how often and where. Memory written by pointer is kept, so that batches made by host code
// are real.
// Operators whose result depends on values (nonzero, masked_select, unique) throw UsageError
// "anatomy.data-dependent"; one without a shape rule UsageError "anatomy.no-shape-rule".
//
// Thread rule: acts on the thread it was made on, and on autograd's. Source: a fallback at a
// dispatch key of LibTorch's that lies below autograd; docs/design/005.
#pragma once

#include <memory>

#include "hasten/config/gpus.h"

namespace hasten {

class DryRun {
 public:
  DryRun();                         // on the CPU
  explicit DryRun(const Gpu& gpu);  // on a GPU, which outlives it; one at a time
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  ~DryRun();

  // Whether this thread is inside one.
  static bool active();
  // The GPU of the dry run that is on, or null.
  static const Gpu* gpu();

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace hasten
