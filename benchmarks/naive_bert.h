// BERT for sequence classification as a user of plain LibTorch writes it: torch::nn modules only,
// without hasten.
#pragma once

#include <torch/torch.h>

namespace naive {

namespace nn = torch::nn;

struct Sizes {
  std::int64_t vocab = 30522, hidden = 768, layers = 12, heads = 12, inner = 3072, positions = 512;
  double dropout = 0.1;
};

struct LayerImpl : nn::Module {
  explicit LayerImpl(const Sizes& s)
      : heads(s.heads),
        rate(s.dropout),
        q(register_module("q", nn::Linear(s.hidden, s.hidden))),
        k(register_module("k", nn::Linear(s.hidden, s.hidden))),
        v(register_module("v", nn::Linear(s.hidden, s.hidden))),
        o(register_module("o", nn::Linear(s.hidden, s.hidden))),
        up(register_module("up", nn::Linear(s.hidden, s.inner))),
        down(register_module("down", nn::Linear(s.inner, s.hidden))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({s.hidden}).eps(1e-12)))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({s.hidden}).eps(1e-12)))),
        drop(register_module("drop", nn::Dropout(s.dropout))) {}

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto split = [&](const torch::Tensor& t) {
      return t.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
    };
    const auto seen = torch::scaled_dot_product_attention(split(q(x)), split(k(x)), split(v(x)),
                                                          mask, is_training() ? rate : 0.0);
    const auto mixed = norm1(drop(o(seen.transpose(1, 2).reshape(x.sizes()))) + x);
    return norm2(drop(down(torch::gelu(up(mixed)))) + mixed);
  }

  std::int64_t heads;
  double rate;
  nn::Linear q, k, v, o, up, down;
  nn::LayerNorm norm1, norm2;
  nn::Dropout drop;
};
TORCH_MODULE(Layer);

struct BertImpl : nn::Module {
  explicit BertImpl(const Sizes& s)
      : word(register_module("word", nn::Embedding(s.vocab, s.hidden))),
        position(register_module("position", nn::Embedding(s.positions, s.hidden))),
        type(register_module("type", nn::Embedding(2, s.hidden))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({s.hidden}).eps(1e-12)))),
        drop(register_module("drop", nn::Dropout(s.dropout))),
        pooler(register_module("pooler", nn::Linear(s.hidden, s.hidden))),
        head(register_module("head", nn::Linear(s.hidden, 2))) {
    for (std::int64_t i = 0; i < s.layers; ++i) layers->push_back(Layer(s));
    register_module("layers", layers);
  }

  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& mask) {
    auto x =
        drop(norm(word(ids) + position(torch::arange(ids.size(1))) + type(torch::zeros_like(ids))));
    const auto allowed = mask.to(torch::kBool).view({mask.size(0), 1, 1, mask.size(1)});
    for (const auto& layer : *layers) x = layer->as<LayerImpl>()->forward(x, allowed);
    return head(drop(torch::tanh(pooler(x.select(1, 0)))));
  }

  nn::Embedding word, position, type;
  nn::LayerNorm norm;
  nn::Dropout drop;
  nn::Linear pooler, head;
  nn::ModuleList layers;
};
TORCH_MODULE(Bert);

}  // namespace naive
