#include "checkpoint/job_lock.h"

#include "hasten/options/detail/environment.h"

namespace hasten {

std::string name_of_job(const Worker& worker) { return worker.job == "none" ? "" : worker.job; }

std::shared_ptr<FolderLock> lock_for_job(const std::filesystem::path& folder, bool continues,
                                         const std::function<void(const std::string&)>& report) {
  const Worker worker = this_worker();
  return FolderLock::acquire(folder, {.job = name_of_job(worker),
                                      .attempt = worker.attempt,
                                      .continues = continues,
                                      .report = report});
}

}  // namespace hasten
