// File: device/graph_recorder.h (internal)
// Records the operations that a device is asked for, and starts them again with one call. A GPU's
// graph costs the host one call instead of one for each kernel.
//
//   const GraphSupport support = device_of(device).graphs(device.index());
//   const GraphRecorder::Recording step = support.recorder->record([&] { run_step(); });
//   if (step.graph) step.graph->replay();
//   else log(step.failure);
//
// While it records, the device runs nothing: tensors keep what they hold, and results have no values.
// A replay runs the recorded operations on the addresses and with the numbers that they were given. So
// whatever changes from replay to replay must be in a tensor that was there before, and that is written
// before each replay. Memory that operations allocate while they are recorded belongs to the graphs of
// the recorder, which share it: a replay may overwrite the results of another graph, except tensors that
// the caller still holds.
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
  // Starts the operations, in the current stream of the device.
  virtual void replay() = 0;
};

class GraphRecorder {
 public:
  struct Recording {
    std::unique_ptr<RecordedGraph> graph = nullptr;  // null: it failed
    std::string failure = "";                        // why
  };

  virtual ~GraphRecorder() = default;
  // Records the operations that `work` asks for. An exception of `work`, or an operation that a graph
  // cannot repeat, such as reading a number, is a failure. Graphs must not outlive the recorder.
  virtual Recording record(const std::function<void()>& work) = 0;
};

// The recorder of a device, or why it has none.
struct GraphSupport {
  std::unique_ptr<GraphRecorder> recorder = nullptr;
  std::string missing = "";
};

}  // namespace hasten
