#include "anatomy/dry_graphs.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>

#include "anatomy/dry_gpu.h"

namespace hasten::anatomy {
namespace {

// Counts the graphs of a recorder.
class DryGraph final : public RecordedGraph {
 public:
  explicit DryGraph(std::shared_ptr<std::int64_t> graphs) : graphs_(std::move(graphs)) {
    ++*graphs_;
  }
  ~DryGraph() override {
    DryGpu* const gpu = DryGpu::active();
    if (--*graphs_ == 0 && gpu != nullptr) gpu->memory()->forget_graphs();
  }
  void replay() override {}

 private:
  const std::shared_ptr<std::int64_t> graphs_;
};

// Ends the recording even if the work throws.
class RecordingScope {
 public:
  explicit RecordingScope(DryGpu& gpu) : gpu_(gpu) { gpu_.record_graph(true); }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
  ~RecordingScope() { gpu_.record_graph(false); }

 private:
  DryGpu& gpu_;
};

class DryGraphRecorder final : public GraphRecorder {
 public:
  Recording record(const std::function<void()>& work) override {
    DryGpu* const gpu = DryGpu::active();
    TORCH_CHECK(gpu != nullptr, "a graph is recorded on a simulated GPU that no longer exists");
    try {
      const RecordingScope scope(*gpu);
      work();
      return {.graph = std::make_unique<DryGraph>(graphs_)};
    } catch (const c10::Error& error) {
      return {.failure = error.what_without_backtrace()};
    }
  }

 private:
  const std::shared_ptr<std::int64_t> graphs_ = std::make_shared<std::int64_t>(0);
};

}  // namespace

std::unique_ptr<GraphRecorder> dry_graph_recorder() { return std::make_unique<DryGraphRecorder>(); }

}  // namespace hasten::anatomy
