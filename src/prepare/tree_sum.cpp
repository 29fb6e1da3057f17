#include "prepare/tree_sum.h"

#include <torch/torch.h>

#include <utility>

namespace hasten {
namespace {

// Adds `next` to `sum`. A missing tensor counts as zeros, so that -0 becomes 0.
void add_list(TensorList& sum, const TensorList& next) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i].defined() && next[i].defined()) {
      sum[i].add_(next[i]);
    } else if (sum[i].defined() || next[i].defined()) {
      if (!sum[i].defined()) sum[i] = next[i];
      sum[i].add_(0);
    }
  }
}

}  // namespace

void TreeSum::add(TensorList term) {
  const torch::NoGradGuard no_grad;
  Node node{.sum = std::move(term), .terms = 1};
  while (!nodes_.empty() && nodes_.back().terms == node.terms) {
    add_list(nodes_.back().sum, node.sum);
    nodes_.back().terms *= 2;
    node = std::move(nodes_.back());
    nodes_.pop_back();
  }
  nodes_.push_back(std::move(node));
}

TensorList TreeSum::take() {
  TORCH_INTERNAL_ASSERT(nodes_.size() == 1, "the number of terms is not a power of two");
  TensorList sum = std::move(nodes_.front().sum);
  nodes_.clear();
  return sum;
}

double tree_sum(std::vector<double> terms) {
  for (; terms.size() > 1; terms.resize(terms.size() / 2)) {
    for (std::size_t i = 0; 2 * i < terms.size(); ++i) terms[i] = terms[2 * i] + terms[2 * i + 1];
  }
  return terms.front();
}

}  // namespace hasten
