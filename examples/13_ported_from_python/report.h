// Prints the evaluations of a run, one line for each: "epoch 1: loss 0.5000, accuracy 0.8000".
#pragma once

#include <hasten/base/files.h>
#include <hasten/hasten.h>

#include <iostream>
#include <string>
#include <vector>

inline void print_evaluations(const hasten::Trainer& trainer,
                              const std::vector<std::string>& scores) {
  for (const hasten::LogEntry& entry : trainer.state().log_history) {
    if (!entry.contains("eval_loss")) continue;
    std::cout << "epoch " << hasten::fixed(entry.at("epoch"), 0) << ":";
    for (const std::string& score : scores) {
      std::cout << (score == scores.front() ? " " : ", ") << score << ' '
                << hasten::fixed(entry.at("eval_" + score), 4);
    }
    std::cout << '\n';
  }
}
