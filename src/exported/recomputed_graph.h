// File: exported/recomputed_graph.h (internal)
// Turns the calls of modules in a program into regions that run again in the backward pass.
//
//   const std::vector<std::string> layers = layer_paths(program.graph);    // "encoder.layer.0", ...
//   const Graph graph = with_recomputation(program.graph, layers, CheckpointOptions{});
//
// A region is a sequence of instructions of one module. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "exported/program.h"

namespace hasten::exported {

// The modules that a program repeats: the shortest paths that end in a number, in the order in
// which they run.
std::vector<std::string> layer_paths(const Graph& graph);
// The shortest paths that a pattern matches, in that order. Throws UsageError
// "models.recomputed-modules" for a pattern without a match.
std::vector<std::string> matching_paths(const Graph& graph,
                                        const std::vector<std::string>& patterns);

// Returns the graph with the calls of these modules as instructions of Action::recompute.
Graph with_recomputation(const Graph& graph, const std::vector<std::string>& paths,
                         const CheckpointOptions& options);

}  // namespace hasten::exported
