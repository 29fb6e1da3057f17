#include "prepare/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using Future = c10::ivalue::Future;

// Draws the seeds of the initial Qs. They are the numbers of numpy's
// RandomState(seed).randint(10^9), as in torch.
class SeedGenerator {
 public:
  explicit SeedGenerator(std::uint32_t seed) : bits_(seed) {}

  std::uint64_t next() {
    constexpr std::uint32_t kMaxSeed = 999'999'999, kMask = (1u << 30) - 1;
    std::uint32_t drawn = kMask;
    while (drawn > kMaxSeed) drawn = static_cast<std::uint32_t>(bits_()) & kMask;
    return drawn;
  }

 private:
  std::mt19937 bits_;
};

// A gradient M, or a whole bucket, with its P and Q, which are slices of the bucket's P and Q.
struct Factors {
  at::Tensor matrix, p, q;  // [n, m], [n, rank], [m, rank]
};

// The state of a bucket that is kept between steps.
struct BucketState {
  at::Tensor error;         // the part that the compression has lost
  at::Tensor all_p, all_q;  // of all its matrices, concatenated
};

// A bucket that is being exchanged.
struct BucketReduction {
  at::Tensor buffer;                     // the bucket
  at::Tensor padded;                     // the bucket, padded to a square if batched
  at::Tensor before;                     // the gradients to send, with the last step's error
  std::vector<at::Tensor> uncompressed;  // gradients that are not compressed
  at::Tensor flat_uncompressed;          // the same, concatenated
  std::vector<Factors> compressed;
  std::shared_ptr<BucketState> state;
  c10::intrusive_ptr<c10d::Work> uncompressed_work, p_work;
  ReductionFuture done = c10::make_intrusive<Future>(c10::TensorType::get());
};

void divide_by_length(const at::Tensor& column, double epsilon) {
  const at::Tensor length = at::norm(column) + epsilon;
  // A gradient of zeros has no direction, and 0 / 0 would reach the weights.
  column.copy_(at::where(length == 0, column, column / length));
}

// Makes the columns of an [n, rank] matrix orthonormal. Like torch, uses QR where that is faster.
void orthogonalize(const at::Tensor& matrix, double epsilon) {
  const std::int64_t rank = matrix.size(1);
  const bool is_half = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  if (rank > 2 && !is_half) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return;
  }
  for (std::int64_t i = 0; i < rank; ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    divide_by_length(column, epsilon);
    if (i + 1 == rank) break;
    const at::Tensor rest = matrix.narrow(1, i + 1, rank - i - 1);
    rest.sub_((column * rest).sum(0, /*keepdim=*/true) * column);
  }
}

// Issues collectives only in sum(), which one thread calls bucket by bucket. The P of a bucket is
// sent while the backward pass continues, and its Q when the next bucket arrives. Callbacks of
// futures run in any order and only compute.
class PowerSGD : public GradientExchange {
 public:
  PowerSGD(PowerSGDState options, bool batched, NativeGroup group,
           std::shared_ptr<GradientExchange> uncompressed_exchange)
      : options_(options),
        batched_(batched),
        group_(std::move(group)),
        uncompressed_exchange_(std::move(uncompressed_exchange)),
        seed_generator_(options.random_seed) {}

  ReductionFuture sum(c10d::GradBucket& bucket, double factor) override {
    const torch::NoGradGuard no_grad;
    if (bucket.getIndex() == 0) pending_.reset();  // left by a pass that threw
    const bool last = bucket.isLast();
    if (step_ < options_.start_powerSGD_iter) {
      if (last) ++step_;
      return uncompressed_exchange_->sum(bucket, factor);
    }
    if (factor != 1.0) bucket.getBufferRef().mul_(factor);
    auto reduction = std::make_shared<BucketReduction>();
    if (batched_) {
      begin_batched(*reduction, bucket);
    } else {
      begin(*reduction, bucket);
    }
    send_p(*reduction);
    if (pending_) send_q(std::exchange(pending_, nullptr));
    if (last) {
      send_q(reduction);
      ++step_;
    } else {
      pending_ = reduction;
    }
    return reduction->done;
  }

 private:
  void begin(BucketReduction& reduction, c10d::GradBucket& bucket) {
    reduction.buffer = reduction.padded = bucket.getBuffer();
    reduction.state = state_of(bucket.getIndex(), reduction.padded);
    add_error(reduction);
    std::vector<at::Tensor> flat, matrices;
    for (const at::Tensor& gradient : bucket.getGradients()) {
      const at::Tensor matrix =
          gradient.dim() == 0 ? gradient.view({1, 1}) : gradient.view({gradient.size(0), -1});
      if (should_compress(matrix)) {
        matrices.push_back(matrix);
      } else {
        reduction.uncompressed.push_back(gradient);
        flat.push_back(gradient.flatten());
      }
    }
    if (!flat.empty()) reduction.flat_uncompressed = at::cat(flat);
    factorize(reduction, matrices);
  }

  void begin_batched(BucketReduction& reduction, c10d::GradBucket& bucket) {
    reduction.buffer = bucket.getBuffer();
    const auto side = static_cast<std::int64_t>(
        std::ceil(std::sqrt(static_cast<double>(reduction.buffer.numel()))));
    reduction.padded = at::zeros({side * side}, reduction.buffer.options());
    reduction.padded.narrow(0, 0, reduction.buffer.numel()).copy_(reduction.buffer);
    reduction.state = state_of(bucket.getIndex(), reduction.padded);
    add_error(reduction);
    factorize(reduction, {reduction.padded.view({side, side})});
  }

  // Returns the state of the bucket. It starts with zeros, also if the size has changed because the
  // reducer has made new buckets.
  std::shared_ptr<BucketState> state_of(std::size_t bucket, const at::Tensor& padded) {
    std::shared_ptr<BucketState>& state = states_[bucket];
    const bool fits = state && state->error.defined() && state->error.sizes() == padded.sizes();
    if (!fits) {
      state = std::make_shared<BucketState>();
      state->error = at::zeros_like(padded);
    }
    return state;
  }

  void add_error(BucketReduction& reduction) const {
    if (!options_.use_error_feedback) return;
    reduction.padded.add_(reduction.state->error);
    reduction.before = reduction.padded.clone();
  }

  std::int64_t rank_of(const at::Tensor& matrix) const {
    if (batched_) return std::min(options_.matrix_approximation_rank, matrix.size(0));
    return std::min({options_.matrix_approximation_rank, matrix.size(0), matrix.size(1)});
  }

  bool should_compress(const at::Tensor& matrix) const {
    const auto sent = static_cast<double>((matrix.size(0) + matrix.size(1)) * rank_of(matrix));
    return sent * options_.min_compression_rate < static_cast<double>(matrix.numel());
  }

  // Assigns each matrix its P and Q, and computes P = M Q.
  void factorize(BucketReduction& reduction, const std::vector<at::Tensor>& matrices) {
    std::int64_t rows = 0, columns = 0;
    for (const at::Tensor& matrix : matrices) {
      rows += matrix.size(0) * rank_of(matrix);
      columns += matrix.size(1) * rank_of(matrix);
    }
    BucketState& state = *reduction.state;
    const bool is_new = !options_.warm_start || !state.all_q.defined() ||
                        state.all_p.numel() != rows || state.all_q.numel() != columns;
    if (is_new) {
      state.all_p = at::empty({rows}, reduction.padded.options());
      state.all_q = at::empty({columns}, reduction.padded.options());
    }
    std::int64_t p_at = 0, q_at = 0;
    for (const at::Tensor& matrix : matrices) {
      const std::int64_t n = matrix.size(0), m = matrix.size(1), rank = rank_of(matrix);
      reduction.compressed.push_back({matrix, state.all_p.narrow(0, p_at, n * rank).view({n, rank}),
                                      state.all_q.narrow(0, q_at, m * rank).view({m, rank})});
      p_at += n * rank;
      q_at += m * rank;
    }
    if (is_new) randomize(reduction.compressed);
    for (Factors& each : reduction.compressed) {
      // A Q of zeros, from a gradient of zeros, would stay zero forever.
      if (!is_new && (each.q == 0).all().item<bool>()) randomize({each});
      orthogonalize(each.q, options_.orthogonalization_epsilon);
      at::mm_out(each.p, each.matrix, each.q);
    }
  }

  // Draws every Q, from the same seed in every process.
  void randomize(const std::vector<Factors>& all) {
    const at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(seed_generator_.next());
    for (const Factors& each : all) {
      const auto type = at::TensorOptions(each.q.scalar_type());
      each.q.copy_(at::randn(each.q.sizes(), generator, type));
    }
  }

  void send_p(BucketReduction& reduction) {
    if (reduction.flat_uncompressed.defined())
      reduction.uncompressed_work = send(reduction.flat_uncompressed);
    if (!reduction.compressed.empty()) reduction.p_work = send(reduction.state->all_p);
  }

  c10::intrusive_ptr<c10d::Work> send(const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    return group_->allreduce(tensors);
  }

  // Waits for P, sends Q = M^T P and, once that has been summed, sets M = P Q^T.
  void send_q(const std::shared_ptr<BucketReduction>& reduction) {
    if (reduction->uncompressed_work) {
      reduction->uncompressed_work->wait();
      std::int64_t at = 0;
      for (const at::Tensor& gradient : reduction->uncompressed) {
        gradient.copy_(
            reduction->flat_uncompressed.narrow(0, at, gradient.numel()).view_as(gradient));
        at += gradient.numel();
      }
    }
    if (reduction->compressed.empty()) return reduction->done->markCompleted(reduction->buffer);
    reduction->p_work->wait();
    for (const Factors& each : reduction->compressed) {
      // torch does not divide P by the number of processes, so its epsilon has less weight.
      orthogonalize(each.p, options_.orthogonalization_epsilon / group_->getSize());
      at::mm_out(const_cast<at::Tensor&>(each.q), each.matrix.t(), each.p);
    }
    send(reduction->state->all_q)
        ->getFuture()
        ->addCallback([reduction, feedback = options_.use_error_feedback,
                       world = group_->getSize()](Future& sent) {
          finish(*reduction, sent, feedback, world);
        });
  }

  static void finish(const BucketReduction& reduction, const Future& sent, bool feedback,
                     int world) {
    if (sent.hasError()) return reduction.done->setError(sent.exception_ptr());
    try {
      const torch::NoGradGuard no_grad;
      for (const Factors& each : reduction.compressed)
        at::mm_out(const_cast<at::Tensor&>(each.matrix), each.p, each.q.t());
      // Each process keeps its own gradients minus an equal share of the compressed sum. These
      // errors add up to the part that the sum lacks.
      if (feedback)
        reduction.state->error = at::sub(reduction.before, reduction.padded, 1.0 / world);
      if (!reduction.padded.is_same(reduction.buffer))
        reduction.buffer.copy_(reduction.padded.narrow(0, 0, reduction.buffer.numel()));
      reduction.done->markCompleted(reduction.buffer);
    } catch (...) {
      reduction.done->setError(std::current_exception());
    }
  }

  const PowerSGDState options_;
  const bool batched_;
  NativeGroup group_;
  std::shared_ptr<GradientExchange> uncompressed_exchange_;
  SeedGenerator seed_generator_;
  std::map<std::size_t, std::shared_ptr<BucketState>> states_;  // by bucket
  std::shared_ptr<BucketReduction> pending_;                    // its P is being summed
  std::int64_t step_ = 0;
};

void check(const PowerSGDState& options) {
  const auto throw_option = [](const char* what, const std::string& got, const char* expected) {
    throw UsageError("prepare.power-sgd",
                     {.what = str("comm_state_option.", what), .got = got, .expected = expected});
  };
  if (options.matrix_approximation_rank < 1)
    throw_option("matrix_approximation_rank", str(options.matrix_approximation_rank), "1 or more");
  if (!(options.min_compression_rate > 0))
    throw_option("min_compression_rate", str(options.min_compression_rate), "more than 0");
  if (!(options.orthogonalization_epsilon >= 0))
    throw_option("orthogonalization_epsilon", str(options.orthogonalization_epsilon), "0 or more");
  if (options.start_powerSGD_iter < 2 && (options.use_error_feedback || options.warm_start)) {
    throw_option(
        "start_powerSGD_iter", str(options.start_powerSGD_iter),
        "2 or more with use_error_feedback or warm_start, because the order of the buckets is "
        "known only after the first step");
  }
}

}  // namespace

std::shared_ptr<GradientExchange> power_sgd(
    const PowerSGDState& options, bool batched, NativeGroup group,
    std::shared_ptr<GradientExchange> uncompressed_exchange) {
  check(options);
  return std::make_shared<PowerSGD>(options, batched, std::move(group),
                                    std::move(uncompressed_exchange));
}

}  // namespace hasten
