#include "hasten/prepare/detail/prepared_loader.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <utility>

#include "checkpoint/random_state.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/accelerator_state.h"
#include "prepare/foreign_loader.h"

namespace hasten::detail {

struct LoaderPass::Impl {
  Impl(std::shared_ptr<AcceleratorState> shared, bool draws,
       std::shared_ptr<ForeignLoaderPosition> at)
      : state(std::move(shared)), foreign(*state, draws), draws(draws), position(std::move(at)) {}

  std::shared_ptr<AcceleratorState> state;
  ForeignLoader foreign;
  bool draws;
  std::shared_ptr<ForeignLoaderPosition> position;  // null for a hasten loader
  std::int64_t steps = 0, skipped_steps = 0;
  // The generator state that a resumed pass restores after its start. Undefined if there is none.
  at::Tensor generator_after_start;
  // The rows of the current batch before it was filled up, and the largest number of rows of a
  // batch so far.
  std::int64_t unpadded_rows = -1, full_rows = 0;
};

LoaderPass::LoaderPass(std::shared_ptr<AcceleratorState> state, bool draws,
                       std::shared_ptr<ForeignLoaderPosition> position)
    : impl_(std::make_unique<Impl>(std::move(state), draws, std::move(position))) {}

LoaderPass::~LoaderPass() {
  finish_start();  // the start may have thrown
  if (impl_->position && impl_->position->pass == this) impl_->position->current = {};
  impl_->state->loaders.end_pass(info);
}

void LoaderPass::start() {
  if (!impl_->position) return;
  ForeignLoaderPosition& position = *impl_->position;
  position.pass = this;
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  const bool resumes = std::exchange(position.resumes, false);
  if (resumes && position.resumed.generator.defined()) {
    impl_->generator_after_start = generator.get_state();
    restore_generator(generator, {{"cpu", position.resumed.generator}}, "cpu");
  }
  impl_->skipped_steps = resumes ? position.resumed.batches : 0;
  position.current = {.batches = 0,
                      .generator = impl_->draws ? generator.get_state() : at::Tensor()};
}

void LoaderPass::finish_start() {
  const at::Tensor state = std::exchange(impl_->generator_after_start, {});
  if (!state.defined()) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

std::int64_t LoaderPass::skipped_steps() const { return impl_->skipped_steps; }

// After the last step, the position is the start of the next pass.
void LoaderPass::count_step() {
  ++impl_->steps;
  if (!impl_->position || impl_->position->pass != this) return;
  if (info.is_last) {
    impl_->position->current = {};
  } else {
    impl_->position->current.batches = impl_->steps;
  }
}

void LoaderPass::enter() { impl_->state->loaders.begin_pass(info); }

bool LoaderPass::compares() const { return impl_->foreign.compares(); }

void LoaderPass::compare(const std::vector<at::Tensor>& tensors) {
  impl_->foreign.compare(tensors);
}

std::int64_t LoaderPass::rank() const { return impl_->state->group.rank(); }

std::int64_t LoaderPass::world_size() const { return impl_->state->group.size(); }

bool LoaderPass::even_batches() const { return impl_->state->loaders.even_batches(); }

bool LoaderPass::moves_batches() const { return impl_->state->placement.moves; }

bool LoaderPass::pads_batches() const { return moves_batches() && impl_->state->placement.pads; }

at::Device LoaderPass::device() const { return impl_->state->placement.device; }

std::optional<at::ScalarType> LoaderPass::type_of(const at::Tensor& tensor) const {
  return impl_->state->placement.type_of(tensor);
}

TensorDict LoaderPass::place(TensorDict batch) {
  impl_->unpadded_rows = rows_of(batch);
  // The last batch may be smaller.
  impl_->full_rows = std::max(impl_->full_rows, impl_->unpadded_rows);
  return impl_->state->placement.place(std::move(batch), impl_->full_rows);
}

void LoaderPass::count_padded_rows(const TensorDict& placed) {
  const std::int64_t rows = rows_of(placed);
  if (impl_->unpadded_rows < 0 || rows <= impl_->unpadded_rows) return;
  if (info.real_rows < 0) info.real_rows = impl_->unpadded_rows;
  info.rows = rows;
}

// If batches are not moved here, Accelerator::to_device reports them.
bool LoaderPass::is_observed() const { return moves_batches() && !impl_->state->observers.empty(); }

void LoaderPass::report(const std::vector<at::Tensor>& tensors) const {
  impl_->state->observers.notify(&StepObserver::on_batch, tensors);
}

void LoaderPass::enter_begin() { impl_->foreign.enter_begin(); }
void LoaderPass::leave_begin() { impl_->foreign.leave_begin(); }
void LoaderPass::enter_read() { impl_->foreign.enter_read(); }
void LoaderPass::leave_read() { impl_->foreign.leave_read(); }

std::shared_ptr<LoaderPosition> known_position(AcceleratorState& state, const void* loader) {
  return state.saved.find_loader(loader);
}

void add_position(AcceleratorState& state, const std::shared_ptr<LoaderPosition>& position) {
  state.saved.add_loader(position);
}

void throw_position_past_end(std::int64_t batches) {
  throw DataError("data.state",
                  {.what = "a prepared loader",
                   .got = str("fewer than the ", batches, " steps before the checkpoint"),
                   .expected = "the loader that the checkpoint was saved with",
                   .hint = "resume with the same data, batch size and number of processes"});
}

void throw_empty_handle(const char* handle) {
  throw UsageError("prepare.empty-handle",
                   {.what = str("a call of ", handle),
                    .got = "an empty handle: free_memory(), reset() or a move has released its "
                           "object",
                    .expected = "a handle that refers to an object",
                    .hint = "prepare() the object again and use the handle that it returns, or "
                            "call free_memory() after the last use"});
}

void throw_uneven_batches() {
  throw UsageError(
      "prepare.uneven-batches",
      {.what = "a loader whose batches cannot be copied ended before every process had a batch",
       .hint = "use hasten::make_loader, which splits the rows instead"});
}

}  // namespace hasten::detail
