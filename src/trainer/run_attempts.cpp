// Trainer::train: makes a run, and with auto_find_batch_size further ones with smaller batches.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "hasten/base/error.h"
#include "trainer/batch_size_search.h"
#include "trainer/training_run.h"

namespace hasten {
namespace {

// Restores the arguments that a restart inside of a call of train() changes: the next call is a run
// of its own.
class StartArgumentsScope {
 public:
  explicit StartArgumentsScope(TrainingArguments& args)
      : args_(args),
        resume_from_checkpoint_(args.resume_from_checkpoint),
        overwrite_output_dir_(args.overwrite_output_dir) {}
  StartArgumentsScope(const StartArgumentsScope&) = delete;
  StartArgumentsScope& operator=(const StartArgumentsScope&) = delete;
  ~StartArgumentsScope() {
    args_.resume_from_checkpoint.swap(resume_from_checkpoint_);
    args_.overwrite_output_dir = overwrite_output_dir_;
  }

 private:
  TrainingArguments& args_;
  std::string resume_from_checkpoint_;
  const bool overwrite_output_dir_;
};

// Releases the lock on output_dir at the end of a call of train().
class OutputLockScope {
 public:
  explicit OutputLockScope(std::shared_ptr<FolderLock>& lock) : lock_(lock) {}
  OutputLockScope(const OutputLockScope&) = delete;
  OutputLockScope& operator=(const OutputLockScope&) = delete;
  ~OutputLockScope() { lock_.reset(); }

 private:
  std::shared_ptr<FolderLock>& lock_;
};

}  // namespace

TrainOutput Trainer::train(const IgnoreKeys& ignore_keys_for_eval) {
  impl_->ignored_in_evaluations = ignore_keys_for_eval;
  const StartArgumentsScope start(impl_->args);
  // It outlives the run, whose last save may still be in the background.
  const OutputLockScope locked(impl_->output_lock);
  Impl::RunCheckpoints::lock_output(*impl_);
  // Only once: after that, the search of the batch size decides where the run continues.
  Impl::Resume::continue_if_restarted(*impl_);
  Impl::RunCheckpoints::check_output_unused(*impl_);
  if (!impl_->args.auto_find_batch_size) return Run(*impl_).train();
  BatchSizeSearch search(*impl_);
  while (true) {
    std::optional<std::filesystem::path> checkpoint;
    {
      Run run(*impl_);
      try {
        return run.train();
      } catch (const MemoryError&) {
        if (!run.ran_out_of_memory()) throw;
        checkpoint = search.restart_point(run.newest_checkpoint(), run.resumed_checkpoint());
        if (!checkpoint || !search.halve()) throw;
      }
    }
    search.restart(*checkpoint);
  }
}

}  // namespace hasten
