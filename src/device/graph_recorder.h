// File: device/graph_recorder.h (internal)
// Records the operations that are submitted to a device, and replays them with one call. A GPU's
// graph costs the host one call instead of one for each kernel.
//
//   const GraphSupport support = device_of(device).graphs(device.index());
//   const GraphRecorder::Recording step = support.recorder->record([&] { run_step(); });
//   if (step.graph) step.graph->replay();
//   else log(step.failure);
//
// While it records, the device runs nothing: tensors keep their contents, and results have no
// values. A replay runs the recorded operations on the same addresses and with the same numbers. So
// a value that changes between replays must be in a tensor that existed before the recording, and
// must be written there before each replay. Memory that operations allocate while they are recorded
// belongs to the graphs of the recorder, which share it: a replay may overwrite the results of
// another graph, except tensors that the caller still holds.
//
// Thread rule: no other thread may use the device while a graph is recorded.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace hasten {

class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  // Replays the operations in the current stream of the device.
  virtual void replay() = 0;
};

class GraphRecorder {
 public:
  struct Recording {
    std::unique_ptr<RecordedGraph> graph = nullptr;  // null if the recording failed
    std::string failure = "";                        // why it failed
  };

  virtual ~GraphRecorder() = default;
  // Records the operations that `work` submits. The recording fails if `work` throws, or if a graph
  // cannot repeat an operation, such as reading a number. Graphs must not outlive the recorder.
  virtual Recording record(const std::function<void()>& work) = 0;
};

// The recorder of a device, or the reason why it has none.
struct GraphSupport {
  std::unique_ptr<GraphRecorder> recorder = nullptr;
  std::string missing = "";
};

}  // namespace hasten
