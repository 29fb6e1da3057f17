// Batches on their way to the model: without padding if padding_free is set, and with equal shapes
// on a device that needs them.
#include <torch/torch.h>

#include <typeinfo>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/pack_rows.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

[[noreturn]] void throw_padding_free(const std::string& got, const std::string& expected) {
  throw ConfigError(
      "trainer.padding-free",
      {.what = "padding_free", .got = got, .expected = expected, .hint = "leave out padding_free"});
}

}  // namespace

void Trainer::Impl::check_padding_free() const {
  if (!args.padding_free) return;
  if (traits().needs_static_shapes) {
    throw_padding_free(str("device ", accelerator.device().str(),
                           ", which compiles a program for each number of tokens"),
                       "a device that does not, such as a GPU");
  }
  const TrainingTraits* const of_model = model_traits();
  if (of_model == nullptr || !of_model->supports_packed_batches()) {
    throw_padding_free(
        c10::demangle(typeid(*model).name()) + ", which does not take several texts in one row",
        "a model of hasten for texts, or one that overrides "
        "TrainingTraits::supports_packed_batches");
  }
  const std::type_info* const batches = parts.train_dataset.batch_type();
  if (batches != nullptr && *batches != typeid(TensorDict))
    throw_padding_free("batches of the type " + c10::demangle(batches->name()),
                       "batches of TensorDict");
}

// compute_loss and classes that derive from Trainer may read outputs with an entry for each token
// of the padded rows.
bool Trainer::Impl::evaluates_unpadded_batches(bool reads_outputs) const {
  if (!args.padding_free || parts.compute_loss || typeid(trainer) != typeid(Trainer)) return false;
  return !reads_outputs || !model_traits()->has_outputs_of_tokens();
}

// The batch of the loader keeps its padding, because tokens and floating-point operations are
// counted with it. A copy from pinned memory does not block the host.
AnyBatch Trainer::Impl::unpadded_batch(const AnyBatch& batch) const {
  const TensorDict* const columns = batch.get_if<TensorDict>();
  if (!args.padding_free || columns == nullptr) return batch;
  const TrainingTraits* const of_model = model_traits();
  TensorDict packed = pack_rows(*columns, of_model != nullptr && of_model->shifts_labels());
  if (args.dataloader_pin_memory && traits().copies_from_pinned_memory) pin(packed);
  return AnyBatch(std::move(packed));
}

// In a dry run a pinned copy has no content, and the model reads the lengths of packed rows.
void Trainer::Impl::pin(TensorDict& batch) const {
  const auto bounds = batch.find(kPackedRows);
  if (bounds != batch.end()) batch.emplace(kPackedRowsOnHost, bounds->second);
  for (auto& [name, tensor] : batch) {
    if (name != kPackedRowsOnHost) tensor = detail::pinned(tensor);
  }
}

AnyBatch Trainer::Impl::to_device(const AnyBatch& batch, std::int64_t rows) const {
  if (const TensorDict* const columns = batch.get_if<TensorDict>())
    return AnyBatch(accelerator.to_device(*columns, rows));
  return accelerator.to_device(batch.copy());
}

at::Tensor Trainer::Impl::output_of(const at::Tensor& output, const AnyBatch& given) const {
  const TensorDict* const columns = given.get_if<TensorDict>();
  if (!traits().needs_static_shapes || columns == nullptr) return output;
  const std::int64_t length = model_traits() != nullptr ? model_traits()->row_length(*columns) : 0;
  return without_padding(output, rows_of(*columns), length);
}

}  // namespace hasten
