#include "anatomy/dry_graphs.h"

#include <c10/util/Exception.h>

#include "anatomy/dry_gpu.h"

namespace hasten::anatomy {
namespace {

struct DryGraph final : RecordedGraph {
  void replay() override {}
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
      return {.graph = std::make_unique<DryGraph>()};
    } catch (const c10::Error& error) {
      return {.failure = error.what_without_backtrace()};
    }
  }
};

}  // namespace

std::unique_ptr<GraphRecorder> dry_graph_recorder() { return std::make_unique<DryGraphRecorder>(); }

}  // namespace hasten::anatomy
