// File: hasten/exported/exported_module.h
// Runs and trains a model that Python has exported with torch.export, without Python.
//
//   auto model = hasten::load_exported("model.pt2");   // torch.export.save(program, "model.pt2")
//   torch::optim::SGD optimizer(model->parameters(), 0.05);
//   hasten::TensorDict out = model->forward({{"input_ids", ids}, {"labels", labels}});
//   out.at("loss").backward();
//   optimizer.step();
//   model->save("trained.pt2");                        // torch.export.load reads it
//   model->save_weights("out");                        // out/model.safetensors, names of state_dict
//
// The Trainer accepts it too, as does `hasten train --model model.pt2` (docs/exported.md). They
// read the outputs "loss" and "logits" of each batch.
//
// The module has Python's parameters and buffers under Python's names, so optimizers,
// Accelerator::prepare, to(), clone() and anatomies work as with any module. Parameters that Python
// shares are one parameter here. Outputs have the keys of the dictionary or class that the model
// returns; "output" if it returns one tensor, and "output_0", "output_1", ... for a tuple.
//
// train() and eval() switch dropout, batch norm and the other operators that have both modes. An
// operator that was off at the export, such as a frozen batch norm, stays off. A model that behaves
// differently in other ways needs a file with two programs: "train" or "model", and "eval"
// (docs/exported.md).
//
// Throws DataError "exported.*" for a file that is damaged or that hasten cannot run, UsageError
// "exported.inputs" for inputs that the export does not allow, "exported.evaluation" if evaluation
// would be wrong, IoError "io.*". Treat an untrusted file like a program: every argument is checked
// against its type, but wrong arguments may still trigger a fault in an operator.
// Thread rule: threads may call forward() of one module at once if none of them changes it.
// Source: schema 8 of torch/_export/serde/schema.py.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/models/linear_layers.h"
#include "hasten/models/training_traits.h"

namespace hasten {

struct ExportedOptions {
  // The namespaces of operators that a library of this program registers ("torchvision") and that
  // the file may call in addition to LibTorch's.
  std::vector<std::string> operator_namespaces = {};
  // Libraries with custom operators, which load_operator_library() loads before the file is read.
  // The file may call the operators that they register.
  std::vector<std::filesystem::path> libraries = {};
};

class HASTEN_API ExportedModule : public torch::nn::Module,
                                  public TrainingTraits,
                                  public LinearLayers {
 public:
  // For load_exported.
  struct Parts;
  explicit ExportedModule(std::shared_ptr<const Parts> parts);
  ~ExportedModule() override;

  // Computes the outputs for inputs by name. Names that the model does not take are ignored.
  TensorDict forward(const TensorDict& inputs);
  // Does the same for inputs in the order of input_names().
  TensorDict forward(const std::vector<at::Tensor>& inputs);
  template <class... Tensors>
  TensorDict forward(const at::Tensor& first, const Tensors&... others) {
    return forward(std::vector<at::Tensor>{first, others...});
  }

  // The names of the inputs of forward(), and of its outputs.
  const std::vector<std::string>& input_names() const;
  const std::vector<std::string>& output_names() const;

  // Throws what forward() throws for inputs that the export does not allow, and computes nothing.
  void check_inputs(const TensorDict& inputs);

  // Throws UsageError "exported.evaluation" if the program cannot be switched to evaluation. Logs a
  // warning if the model was exported in evaluation mode and is to be trained.
  void train(bool on = true) override;
  // Returns a module with its own copies of all tensors. Both modules share the program.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;

  // Returns the parameters and persistent buffers under the names of Python's state_dict(). Shared
  // tensors appear under each of their names.
  TensorDict state_dict() const;
  // Writes the loaded file again with the module's tensors, in the types of the export. The file
  // appears complete or not at all.
  void save(const std::filesystem::path& path) const;
  using torch::nn::Module::save;
  // Writes state_dict() to model.safetensors in the folder. A shared tensor is written once, under
  // its name in named_parameters().
  void save_weights(const std::filesystem::path& folder) const;
  // Copies the tensors of a .safetensors file or of a folder with weights. Every tensor of
  // state_dict() must be present, a shared one under at least one of its names. Throws DataError
  // "weights.mismatch".
  void load_weights(const std::filesystem::path& file_or_folder);

  // Information for the Trainer. If the model has an input "input_ids", it is a text model: its
  // tokens are counted, and its operations are counted as by the Hugging Face Trainer.
  std::int64_t max_length() const override;
  std::optional<double> floating_point_ops(const TensorDict& batch) const override;
  std::optional<std::int64_t> token_count(const TensorDict& batch) const override;
  std::optional<std::int64_t> real_token_count(const TensorDict& batch) const override;
  std::int64_t row_length(const TensorDict& batch) const override;
  std::optional<std::set<std::string>> undecayed_parameters() const override;
  // Recomputes each call of the modules that the patterns match. Without patterns, it recomputes
  // the layers: the modules with the shortest paths that end in a number, such as
  // "bert.encoder.layer.0".
  std::optional<std::vector<std::string>> set_recomputation(
      const std::optional<Recomputation>& wanted) override;
  // Writes trained.pt2 and model.safetensors.
  bool save_files(const std::filesystem::path& folder) const override;
  std::uintmax_t other_file_bytes() const override;
  std::optional<std::vector<std::string>> load_files(const std::filesystem::path& folder) override;

  // The parameters named "weight" that linear operators of the program multiply by.
  std::vector<LinearLayer> linear_layers() const override;
  void set_linear_weight(const std::string& path, const at::Tensor& weight) override;

  // For hasten's own sources: the programs of the file.
  const Parts& parts() const { return *parts_; }

 private:
  struct Binding;

  void bind();
  void register_tensor(const std::string& name, at::Tensor tensor, bool is_parameter);
  Binding& active_binding();
  std::vector<c10::IValue> values_of(const TensorDict& inputs);
  void check(const std::vector<c10::IValue>& inputs);
  std::vector<std::string> copy_weights(const std::filesystem::path& file_or_folder, bool strict);
  at::Device device_for(const std::vector<c10::IValue>& inputs) const;
  TensorDict call(const std::vector<c10::IValue>& inputs);

  std::shared_ptr<const Parts> parts_;
  // The parameters and buffers by Python's names; shared parameters have several names. The handles
  // stay valid: to() and optimizers change tensors, and only set_linear_weight replaces one.
  TensorDict tensors_;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> layers_;
  std::vector<Binding> bindings_;
  bool warned_of_evaluation_export_ = false;
};

// Loads a file that torch.export.save has written, or a file of package_pt2 with the programs
// "train" (or "model") and "eval".
HASTEN_API std::shared_ptr<ExportedModule> load_exported(const std::filesystem::path& path,
                                                         const ExportedOptions& options = {});

}  // namespace hasten
