// File: hasten/anatomy/dry_run.h
// Runs a real program without its memory and its arithmetic. Within a DryRun, autograd, modules,
// optimizers and loops are LibTorch's own, but tensors have no memory pages and operators compute
// only shapes. An Anatomy observes a dry run in the same way as a real run, so a step that would
// take 300 GB is measured on a laptop in a second.
//
//   DryRun dry;                                               // before the model is made
//   auto model = std::make_shared<BertForSequenceClassification>(BertConfig{});
//   Anatomy anatomy;
//   anatomy.watch(*model);
//   // ... the unchanged training loop ...
//   std::cout << to_text(anatomy.report());
//
// DryRun dry(find_gpu("cuda:v100-16gb")) runs the program as on that GPU, on a machine without a
// GPU: torch::cuda::is_available() is true, the bytes of tensors on device cuda:0 are counted by
// the rules of LibTorch's caching allocator, and LibTorch selects the operators it would select on
// that GPU.
//
// A number that the program reads back (item(), a norm, a comparison) is a placeholder: 1, or true.
// The Report's notes say how often and where that happened. Memory that the program writes through
// a pointer is real, and so are batches made by host code.
//
// Throws UsageError: "anatomy.data-dependent" for an operator with a result shape that depends on
// values (nonzero, masked_select, unique); "anatomy.no-shape-rule" for an operator without a shape
// rule; "anatomy.two-gpus" for a second dry run for a GPU; "anatomy.cuda-without-gpu" if LibTorch's
// CUDA library is loaded on a machine without a GPU.
//
// Thread rule: applies to the thread that constructs it and to autograd's threads; construct and
// destroy it on the training thread. Implementation: a fallback kernel at a dispatch key below
// autograd (docs/design/005-dry-run.md).
#pragma once

#include <memory>

#include "hasten/base/detail/export.h"
#include "hasten/machine/gpus.h"

namespace hasten {

class HASTEN_API DryRun {
 public:
  // Predicts for the CPU.
  DryRun();
  // Predicts for a GPU. `gpu` must outlive the DryRun. A process can have one at a time.
  explicit DryRun(const Gpu& gpu);
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  ~DryRun();

  // True if this thread is inside a DryRun.
  static bool active();
  // The GPU that the current dry run predicts for, or null.
  static const Gpu* gpu();

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace hasten
