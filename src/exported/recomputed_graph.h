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

// Returns the paths of the modules that a program repeats: the shortest paths that end in a number,
// in the order in which the modules run.
std::vector<std::string> layer_paths(const Graph& graph);
// Returns the shortest paths that match a pattern, in the same order. Throws UsageError
// "models.recomputed-modules" for a pattern that matches nothing.
std::vector<std::string> matching_paths(const Graph& graph,
                                        const std::vector<std::string>& patterns);

// Returns the graph with the calls of these modules as instructions of Action::recompute.
Graph with_recomputation(const Graph& graph, const std::vector<std::string>& paths,
                         const CheckpointOptions& options);

}  // namespace hasten::exported
