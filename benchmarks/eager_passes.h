// Lists the kernels of the forward and the backward pass of models as Hugging Face Transformers
// runs them in eager mode in float, and as Megatron-LM does, and adds up their predicted times.
//
//   EagerPasses passes(speed_of(find_gpu("cuda:h100-80gb")), /*training=*/true);
//   const Decoder gpt2_large{36, 1280, 20, 5120, 50257};
//   add_gpt2(passes, gpt2_large, 4, 1024);
//   passes.forward.seconds();
//
// hasten's own models use fused attention, so the labels of eager attention need these lists.
// Sources: the modeling files of Transformers 4.36 and of Megatron-LM, and LibTorch 2.1's kernels.
#pragma once

#include <algorithm>
#include <string_view>

#include "anatomy/call_time.h"

namespace hasten::benchmarks {

// The cost of one operator in Python, and of waiting for the GPU to learn a size.
inline constexpr double kPythonCost = 10e-6, kReadback = 40e-6;

struct Pass {
  double kernels = 0, host = 0;
  double seconds() const { return std::max(kernels, host); }
};

class EagerPasses {
 public:
  EagerPasses(const anatomy::GpuSpeed& gpu, bool training) : gpu_(gpu), training_(training) {}

  Pass forward, backward;
  // Bytes that the forward pass takes from the allocator and keeps for the backward pass.
  double kept = 0;

  bool training() const { return training_; }
  const anatomy::GpuSpeed& gpu() const { return gpu_; }

  // A kernel that moves so many floats.
  void move(Pass& pass, double floats, std::string_view name = "aten::mul") {
    if (floats > 0) add(pass, {.name = name, .shapes = {}, .bytes = 4 * floats});
  }
  // `numbers` elements, of which each pass moves so many floats per element.
  void each(double numbers, double in_forward, double in_backward) {
    move(forward, numbers * in_forward);
    move(backward, numbers * in_backward);
  }
  void copy(double numbers) {
    move(forward, 2 * numbers, "aten::copy_");
    move(backward, 2 * numbers, "aten::copy_");
  }
  // The sum of two gradients, where a tensor is used twice.
  void add_gradients(double numbers) { move(backward, 3 * numbers); }
  void dropout(double numbers) {
    if (training_) each(numbers, 2.25, 2.25);
  }
  void normalize(double numbers) {
    move(forward, 2 * numbers, "aten::native_layer_norm");
    move(backward, 3 * numbers, "aten::native_layer_norm_backward");
  }
  void softmax(double numbers) {
    move(forward, 2 * numbers, "aten::_softmax");
    move(backward, 3 * numbers, "aten::_softmax_backward_data");
  }
  void linear(double rows, double columns, double inner, bool bias = true) {
    multiply(forward, 0, rows, columns, inner);
    multiply(backward, 0, rows, inner, columns);
    multiply(backward, 0, columns, inner, rows);
    if (bias) move(backward, rows * columns, "aten::sum");
    move(backward, 3 * columns * inner);  // adds to the gradient
  }
  void batched(double batch, double rows, double columns, double inner) {
    multiply(forward, batch, rows, columns, inner);
    multiply(backward, batch, rows, inner, columns);
    multiply(backward, batch, inner, columns, rows);
  }
  void read_back(Pass& pass) { pass.kernels += kReadback; }

 private:
  void add(Pass& pass, const anatomy::OperatorCall& call) {
    pass.kernels += anatomy::time_of_call(call, gpu_).kernels;
    pass.host += kPythonCost;
  }
  // batch 0: a product of two matrices.
  void multiply(Pass& pass, double batch, double rows, double columns, double inner) {
    const auto shape = [&](double a, double b) {
      std::vector<std::int64_t> sizes;
      if (batch > 0) sizes.push_back(static_cast<std::int64_t>(batch));
      sizes.push_back(static_cast<std::int64_t>(a));
      sizes.push_back(static_cast<std::int64_t>(b));
      return anatomy::TensorShape{.sizes = std::move(sizes)};
    };
    const anatomy::CallShapes shapes{.inputs = {shape(rows, inner), shape(inner, columns)},
                                     .first = {0, 1, 2}};
    add(pass, {.name = batch > 0 ? "aten::bmm" : "aten::mm", .shapes = shapes});
  }

  anatomy::GpuSpeed gpu_;
  bool training_;
};

struct Decoder {
  double layers = 0, width = 0, heads = 0, inner = 0, vocabulary = 0;
};

// Scores, softmax and the product with the values, from q, k and v in separate tensors.
struct Attention {
  double scale_forward = 0, scale_backward = 0;  // floats per score for scale and mask
  bool dropout = true;
};

inline void add_attention(EagerPasses& p, double batch, double length, double heads, double width,
                          const Attention& kind) {
  const double scores = batch * heads * length * length, numbers = batch * length * width,
               size = width / heads;
  for (int i = 0; i < 3; ++i) p.copy(numbers);
  p.batched(batch * heads, length, length, size);
  p.each(scores, kind.scale_forward / 2, kind.scale_backward / 2);
  p.each(scores, kind.scale_forward / 2, kind.scale_backward / 2);
  p.softmax(scores);
  if (kind.dropout) p.dropout(scores);
  p.batched(batch * heads, length, size, length);
  p.copy(numbers);
}

// The sum of a residual connection, after dropout.
inline void add_residual(EagerPasses& p, double numbers) {
  p.dropout(numbers);
  p.each(numbers, 3, 0);
}

// GELU or ReLU as one operator.
inline void add_activation(EagerPasses& p, double numbers) { p.each(numbers, 2, 3); }

// GELU by its approximation with tanh, in eight operators.
inline void add_composed_gelu(EagerPasses& p, double numbers) {
  for (const double floats : {2, 2, 2, 3, 2, 2, 2, 3}) p.move(p.forward, floats * numbers);
  for (const double floats : {2, 2, 2, 3, 2, 2, 3, 3, 3, 3, 3})
    p.move(p.backward, floats * numbers);
}

// The two products of a feed-forward layer with the activation between them, and the residual sum.
inline void add_feed_forward(EagerPasses& p, const Decoder& m, double tokens,
                             void (*activate)(EagerPasses&, double) = add_activation) {
  p.linear(tokens, m.inner, m.width);
  activate(p, tokens * m.inner);
  p.linear(tokens, m.width, m.inner);
  add_residual(p, tokens * m.width);
}

// A norm whose input the residual connection uses, too.
inline void add_norm_of_branch(EagerPasses& p, double numbers) {
  p.normalize(numbers);
  p.add_gradients(numbers);
}

// The output of attention, and the residual sum.
inline void add_projection(EagerPasses& p, const Decoder& m, double tokens) {
  p.linear(tokens, m.width, m.width);
  add_residual(p, tokens * m.width);
}

// The gradient of the loss by the logits, which the labels count to the backward pass.
inline void add_loss(EagerPasses& p, double logits) {
  p.move(p.backward, logits);
  p.move(p.backward, 3 * logits, "aten::_log_softmax_backward_data");
}

// BERT for pre-training, or without its vocabulary head for inference.
inline void add_bert(EagerPasses& p, const Decoder& m, double batch, double length) {
  const double tokens = batch * length, numbers = tokens * m.width;
  p.each(numbers, 2, 2);
  p.move(p.backward, 2 * m.vocabulary * m.width);
  for (int i = 0; i < 2; ++i) p.each(numbers, 3, 0);
  p.each(numbers, 2, 2);
  p.normalize(numbers);
  p.dropout(numbers);
  for (double layer = 0; layer < m.layers; ++layer) {
    for (int i = 0; i < 3; ++i) p.linear(tokens, m.width, m.width);
    for (int i = 0; i < 3; ++i) p.add_gradients(numbers);
    add_attention(p, batch, length, m.heads, m.width, {.scale_forward = 4, .scale_backward = 2});
    add_projection(p, m, tokens);
    add_norm_of_branch(p, numbers);
    add_feed_forward(p, m, tokens);
    p.normalize(numbers);
  }
  const double scores = batch * m.heads * length * length;
  p.kept += 4 * (m.layers * (2.25 * scores + 20.5 * numbers) + tokens * m.vocabulary);
  if (!p.training()) return;
  p.linear(tokens, m.width, m.width);
  p.each(numbers, 2, 3);
  p.normalize(numbers);
  p.linear(tokens, m.vocabulary, m.width);
  add_loss(p, tokens * m.vocabulary);
}

inline void add_gpt2(EagerPasses& p, const Decoder& m, double batch, double length) {
  const double tokens = batch * length, numbers = tokens * m.width;
  p.each(numbers, 2, 2);
  p.move(p.backward, 2 * m.vocabulary * m.width);
  p.each(numbers, 3, 0);
  p.dropout(numbers);
  for (double layer = 0; layer < m.layers; ++layer) {
    add_norm_of_branch(p, numbers);
    p.linear(tokens, 3 * m.width, m.width);
    p.move(p.backward, 6 * numbers, "aten::copy_");
    add_attention(p, batch, length, m.heads, m.width, {.scale_forward = 4, .scale_backward = 4.25});
    add_projection(p, m, tokens);
    add_norm_of_branch(p, numbers);
    add_feed_forward(p, m, tokens, add_composed_gelu);
  }
  p.normalize(numbers);
  p.linear(tokens, m.vocabulary, m.width, /*bias=*/false);
  add_loss(p, tokens * m.vocabulary);
  const double scores = batch * m.heads * length * length;
  p.kept += 4 * (m.layers * (2.25 * scores + 33 * numbers) + tokens * m.vocabulary);
}

inline void add_opt(EagerPasses& p, const Decoder& m, double batch, double length) {
  const double tokens = batch * length, numbers = tokens * m.width,
               scores = batch * m.heads * length * length;
  p.each(numbers, 2, 2);
  p.move(p.backward, 2 * m.vocabulary * m.width);
  p.each(numbers, 3, 0);
  for (double layer = 0; layer < m.layers; ++layer) {
    add_norm_of_branch(p, numbers);
    for (int i = 0; i < 3; ++i) p.linear(tokens, m.width, m.width);
    for (int i = 0; i < 2; ++i) p.add_gradients(numbers);
    p.each(numbers, 2, 2);
    // The mask is added, and the sum limited by torch.max, whose backward pass takes five kernels.
    for (const double floats : {1.25, 2.0, 3.25, 1.25, 2.25}) p.move(p.backward, floats * scores);
    add_attention(p, batch, length, m.heads, m.width, {.scale_forward = 4, .dropout = false});
    add_projection(p, m, tokens);
    add_norm_of_branch(p, numbers);
    add_feed_forward(p, m, tokens);
  }
  p.normalize(numbers);
  p.linear(tokens, m.vocabulary, m.width, /*bias=*/false);
  add_loss(p, tokens * m.vocabulary);
  p.kept += 4 * (m.layers * (2 * scores + 24 * numbers) + tokens * m.vocabulary);
}

// A Switch Transformer (T5 with four experts of 64 rows each in every other layer).
inline void add_switch(EagerPasses& p, double batch, double length) {
  constexpr double kWidth = 1024, kKeys = 4096, kHeads = 32, kInner = 16384, kVocabulary = 32128,
                   kExperts = 4, kCapacity = 64, kLayers = 24;
  const double tokens = batch * length, numbers = tokens * kWidth,
               scores = batch * kHeads * length * length;
  const auto normalize = [&] {
    p.each(numbers, 2, 7);
    p.each(numbers, 1, 1);
    p.each(numbers, 2, 5);
    p.each(numbers, 2, 4);
    p.add_gradients(numbers);
  };
  const auto attend = [&] {
    normalize();
    for (int i = 0; i < 3; ++i) p.linear(tokens, kKeys, kWidth, false);
    for (int i = 0; i < 2; ++i) p.add_gradients(numbers);
    for (int i = 0; i < 3; ++i) p.copy(tokens * kKeys);
    p.batched(batch * kHeads, length, length, kKeys / kHeads);
    p.each(scores, 3, 1);
    p.softmax(scores);
    p.dropout(scores);
    p.batched(batch * kHeads, length, kKeys / kHeads, length);
    p.copy(tokens * kKeys);
    p.linear(tokens, kWidth, kKeys, false);
    add_residual(p, numbers);
  };
  const auto expand = [&](double rows) {
    p.linear(rows, kInner, kWidth, false);
    add_activation(p, rows * kInner);
    p.dropout(rows * kInner);
    p.linear(rows, kWidth, kInner, false);
  };
  const auto route = [&] {
    p.linear(tokens, kExperts, kWidth, false);
    p.each(numbers, 2, 2);
    for (int i = 0; i < 14; ++i) p.each(tokens * kExperts, 2, 2);
    p.each(numbers, 2, 2);
    for (double expert = 0; expert < kExperts; ++expert) {
      for (int i = 0; i < 3; ++i) p.read_back(p.forward);
      p.read_back(p.backward);
      for (int i = 0; i < 6; ++i) p.each(kCapacity * batch * kWidth, 2, 2);
      expand(kCapacity * batch);
    }
    p.each(numbers, 2, 4);
  };
  for (const bool decodes : {false, true}) {
    p.each(numbers, 2, 2);
    p.dropout(numbers);
    p.move(p.backward, 3 * kVocabulary * kWidth);
    for (int layer = 0; layer < kLayers; ++layer) {
      attend();
      if (decodes) attend();
      normalize();
      if (layer % 2 == 1) {
        route();
      } else {
        expand(tokens);
      }
      add_residual(p, numbers);
    }
    normalize();
    p.dropout(numbers);
  }
  p.each(numbers, 2, 2);
  p.linear(tokens, kVocabulary, kWidth, false);
  add_loss(p, tokens * kVocabulary);
  const double attention = 33 * numbers + 2.25 * scores, experts = 0.75 * 41 * numbers;
  p.kept += 4 * (kLayers * (3 * attention + 2 * experts + 14 * numbers) + tokens * kVocabulary);
}

// One rank of Megatron-LM's GPT, whose matrices are divided over `ranks`.
inline void add_megatron(EagerPasses& p, const Decoder& m, double batch, double length,
                         double ranks) {
  const double tokens = batch * length, numbers = tokens * m.width,
               scores = batch * m.heads / ranks * length * length,
               logits = tokens * m.vocabulary / ranks;
  for (int i = 0; i < 2; ++i) p.each(numbers, 2, 2);
  p.each(numbers, 3, 0);
  p.dropout(numbers);
  p.copy(numbers);
  for (double layer = 0; layer < m.layers; ++layer) {
    add_norm_of_branch(p, numbers);
    p.linear(tokens, 3 * m.width / ranks, m.width);
    p.move(p.backward, 6 * numbers / ranks, "aten::copy_");
    p.batched(batch * m.heads / ranks, length, length, m.width / m.heads);
    p.each(scores, 2.25, 2.25);
    p.softmax(scores);
    p.dropout(scores);
    p.batched(batch * m.heads / ranks, length, m.width / m.heads, length);
    p.copy(numbers / ranks);
    p.linear(tokens, m.width, m.width / ranks, false);
    p.each(numbers, 3.25, 2.25);
    add_norm_of_branch(p, numbers);
    p.linear(tokens, m.inner / ranks, m.width, false);
    add_activation(p, tokens * m.inner / ranks);
    p.linear(tokens, m.width, m.inner / ranks, false);
    p.each(numbers, 3.25, 2.25);
  }
  p.normalize(numbers);
  p.linear(tokens, m.vocabulary / ranks, m.width, false);
  for (const double floats : {1, 2, 2, 2, 1, 2}) p.move(p.forward, floats * logits);
  p.move(p.backward, 3 * logits);
}

}  // namespace hasten::benchmarks
