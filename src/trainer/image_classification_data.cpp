#include <torch/torch.h>

#include <optional>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/images.h"
#include "hasten/data/text_reader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/machine/model_folder.h"
#include "hasten/models/detail/image_classifier.h"
#include "machine/arrow_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/data_files.h"
#include "trainer/task_files.h"
#include "trainer/text_labels.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProcessorFile = "preprocessor_config.json";
constexpr std::int64_t kDefaultSize = 224;  // for models that take any size

// One of the two data files: a table of images (also one made from a folder), columns of tensors,
// dummy rows, or none.
struct ImageRows {
  std::string name;
  bool needs_labels = true;
  std::optional<TextTable> table;
  std::optional<ColumnDataset> columns;

  bool has_labels(const std::string& column) const {
    if (needs_labels) return true;
    return table ? has_filled_column(*table, column) : columns->columns().count("labels") > 0;
  }
};

TextTable table_of_folder(const std::string& folder, const TrainOptions& options) {
  const ImageFiles found = list_image_folder(folder);
  TextTable table(folder, {options.image_column, options.label_column});
  for (std::size_t row = 0; row < found.files.size(); ++row) {
    const std::string file = fs::relative(found.files[row], folder).string();
    table.push_back({file, found.classes[row]}, static_cast<std::int64_t>(row) + 1);
  }
  return table;
}

const ImageClassifier& image_model(const PreTrainedModel& model) {
  if (const auto* const found = dynamic_cast<const ImageClassifier*>(&model)) return *found;
  throw DataError("models.task", {.what = "the task image-classification",
                                  .got = "a model for texts",
                                  .expected = "a model of type vit or resnet"});
}

ImageProcessing processing_for(const TrainOptions& options, const ImageClassifier& model) {
  const ImageShape shape = model.image_shape();
  ImageProcessing defaults;
  defaults.channels = shape.channels;
  defaults.height = shape.height > 0 ? shape.height : kDefaultSize;
  defaults.width = shape.width > 0 ? shape.width : kDefaultSize;
  const fs::path file = fs::path(model_folder(options.model)) / kProcessorFile;
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return defaults;
  const ImageProcessing found =
      ImageProcessing::from_json(read_file(file), file.string(), defaults);
  if ((shape.height == 0 || found.out_height() == shape.height) &&
      (shape.width == 0 || found.out_width() == shape.width))
    return found;
  throw DataError("data.image-options",
                  {.what = file.string() + ", the size of the images",
                   .got = str(found.out_height(), " x ", found.out_width()),
                   .expected = str(shape.height, " x ", shape.width, ", as the model takes")});
}

void check_pixels(const ColumnDataset& columns, const ImageClassifier& model,
                  const std::string& source) {
  const auto found = columns.columns().find("pixel_values");
  const ImageShape shape = model.image_shape();
  const auto fits = [&](const at::Tensor& pixels) {
    return pixels.dim() == 4 && pixels.is_floating_point() && pixels.size(1) == shape.channels &&
           (shape.height == 0 || pixels.size(2) == shape.height) &&
           (shape.width == 0 || pixels.size(3) == shape.width);
  };
  if (found != columns.columns().end() && fits(found->second)) return;
  throw DataError(
      "data.columns",
      {.what = source + ": pixel_values",
       .got = found == columns.columns().end() ? "no such column"
                                               : str(c10::toString(found->second.scalar_type()),
                                                     " ", c10::str(found->second.sizes())),
       .expected = str("floating-point [rows, ", shape.channels, ", height, width]",
                       shape.height > 0 ? str(" of ", shape.height, " x ", shape.width) : "")});
}

// Random pixels and labels, for measurements.
ColumnDataset dummy_images(const TrainOptions& options, const ImageClassifier& model) {
  const ImageProcessing processing = processing_for(options, model);
  const at::Generator generator = at::detail::createCPUGenerator(42);
  return ColumnDataset(
      {{"pixel_values", at::randn({options.dummy_rows, processing.channels, processing.out_height(),
                                   processing.out_width()},
                                  generator)},
       {"labels", at::randint(model.num_labels(), {options.dummy_rows}, generator,
                              at::TensorOptions(at::kLong))}});
}

class ImageClassificationFiles : public TaskData {
 public:
  ImageClassificationFiles(const TrainOptions& options, EvalLabels eval_labels)
      : options_(options) {
    eval_.needs_labels = eval_labels == EvalLabels::required;
    read(train_, options_.data);
    read(eval_, options_.eval_data);
    const std::string& column = options_.label_column;
    if (train_.table) {
      labels_ = resolve_training_labels(*train_.table, column, options_.num_labels,
                                        configured_labels(options_.model));
    } else if (eval_.table && eval_.has_labels(column)) {
      eval_labels_ = resolve_evaluation_labels(*eval_.table, column, options_.num_labels,
                                               configured_labels(options_.model));
    }
  }

  ModelOptions model_options() const override {
    return with_labels(model_options_for(Task::image_classification, options_), labels_);
  }
  TrainerDataset train(const PreTrainedModel& model) const override {
    return dataset(train_, model, {.crop = options_.random_crop, .flip = options_.random_flip});
  }
  TrainerDataset eval(const PreTrainedModel& model) const override {
    return dataset(eval_, model, {});
  }
  std::shared_ptr<EvalMetric> metrics(const PreTrainedModel& model) const override {
    return row_metrics(model);
  }
  std::vector<fs::path> tokenizer_files() const override {
    const fs::path file = fs::path(model_folder(options_.model)) / kProcessorFile;
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return {};
    return {file};
  }

 private:
  void read(ImageRows& rows, const std::string& name) const {
    rows.name = name;
    if (name.empty() || name == kDummyData) return;
    if (has_arrow_column(name, "pixel_values")) {
      rows.columns = ColumnDataset(arrow_tensors(name, options_.label_column));
    } else if (fs::is_directory(name) && !is_arrow_data(name)) {
      rows.table = table_of_folder(name, options_);
    } else if (is_text_file(name)) {
      std::vector<std::string> columns = {options_.image_column};
      if (rows.needs_labels) columns.push_back(options_.label_column);
      rows.table = read_text_table(name, {.columns = columns});
    } else {
      rows.columns = ColumnDataset(load_safetensors(name));
    }
  }

  TrainerDataset dataset(const ImageRows& rows, const PreTrainedModel& given,
                         const ImageAugmentation& augmentation) const {
    const ImageClassifier& model = image_model(given);
    if (rows.name.empty()) return TrainerDataset();
    if (rows.table) return dataset_from_table(rows, model, augmentation);
    if (!rows.columns) return TrainerDataset(dummy_images(options_, model));
    check_pixels(*rows.columns, model, rows.name);
    return dataset_from_columns(rows, model);
  }

  TrainerDataset dataset_from_table(const ImageRows& rows, const ImageClassifier& model,
                                    const ImageAugmentation& augmentation) const {
    const TextTable& table = *rows.table;
    // A folder names its images itself. A table is a file in the folder of the images.
    const fs::path folder = fs::is_directory(rows.name) && !is_arrow_data(rows.name)
                                ? fs::path(rows.name)
                                : fs::path(rows.name).parent_path();
    std::vector<fs::path> files;
    for (const std::string& file : table.column(options_.image_column))
      files.push_back(folder / file);
    at::Tensor labels_of_rows;
    if (rows.has_labels(options_.label_column))
      labels_of_rows = (labels_ ? *labels_ : *eval_labels_).encode(table, options_.label_column);
    if (files.empty()) fail_empty(rows.name);
    return TrainerDataset(ImageDataset(std::move(files), labels_of_rows,
                                       processing_for(options_, model), augmentation));
  }

  TrainerDataset dataset_from_columns(const ImageRows& rows, const ImageClassifier& model) const {
    if (rows.columns->size() == 0) fail_empty(rows.name);
    if (!rows.has_labels(options_.label_column)) return TrainerDataset(*rows.columns);
    check_labels(*rows.columns, model.num_labels(), rows.name, model.problem_type());
    TensorDict tensors = rows.columns->columns();
    tensors["labels"] = row_labels(tensors.at("labels"), model, rows.name);
    return TrainerDataset(ColumnDataset(std::move(tensors)));
  }

  [[noreturn]] static void fail_empty(const std::string& source) {
    throw DataError("data.empty", {.what = source, .got = "no rows", .expected = "at least one"});
  }

  TrainOptions options_;
  ImageRows train_, eval_;
  std::optional<TextLabels> labels_;  // the labels of the training data, if it has images
  // The labels of the evaluation data, if only the evaluation data has images with labels.
  std::optional<TextLabels> eval_labels_;
};

}  // namespace

std::unique_ptr<TaskData> read_image_classification_files(const TrainOptions& options,
                                                          EvalLabels eval_labels) {
  return std::make_unique<ImageClassificationFiles>(options, eval_labels);
}

}  // namespace hasten
