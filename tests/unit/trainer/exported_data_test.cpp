#include "hasten/trainer/exported_data.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "unit/code_of.h"

namespace trainer_exported_data_test {

using namespace hasten;

namespace {

const std::filesystem::path kModels = HASTEN_TEST_DATA "/oracle/data/exported";

// A folder with a copy of an exported model, and the files of a test.
struct Scratch {
  explicit Scratch(const std::string& model) {
    std::filesystem::copy_file(kModels / (model + ".pt2"), file("model.pt2"));
    options.model = file("model.pt2").string();
    module = load_exported(options.model);
  }

  std::filesystem::path file(const std::string& name) const { return folder.path() / name; }
  // Writes a data file and sets it in the options.
  void write(const std::string& name, const std::string& text) {
    write_file_atomically(file(name), text);
    options.data = file(name).string();
  }
  TensorDict first_batch(std::int64_t rows) const {
    auto loader = ExportedFiles(options, *module).train().loader({.batch_size = rows});
    return loader.begin()->as<TensorDict>();
  }
  std::string error() const {
    try {
      const ExportedFiles files(options, *module);
    } catch (const Error& error) {
      return error.code() + ": " + error.what();
    }
    return "none";
  }

  TemporaryDirectory folder;
  TrainOptions options;
  std::shared_ptr<ExportedModule> module;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("exported data: a table's columns are the inputs, as arrays of numbers") {
  Scratch scratch("mlp");
  const at::Tensor expected =
      at::tensor({1.0, 2.0, 3.0, 4.5, -5.0, 0.0, 0.5, 1.0, 1.5, 2.0}).view({2, 5});
  scratch.write(
      "rows.tsv",
      "label\tx\tunused\nb\t[1, 2, 3, 4.5, -5]\t7\na\t[0, 0.5, 1, 1.5, 2]\t8\nc\t[0,0,0,0,0]\t9\n");
  TensorDict batch = scratch.first_batch(2);
  CHECK(at::equal(batch.at("x"), expected.to(at::kFloat)));
  CHECK(at::equal(batch.at("labels"), at::tensor({1, 0}, at::kLong)));
  scratch.write("rows.jsonl",
                "{\"x\": [1, 2, 3, 4.5, -5], \"labels\": 2}\n"
                "{\"x\": [0, 0.5, 1, 1.5, 2], \"labels\": 0}\n");
  batch = scratch.first_batch(2);
  CHECK(at::equal(batch.at("x"), expected.to(at::kFloat)));
  CHECK(at::equal(batch.at("labels"), at::tensor({2, 0}, at::kLong)));
}

TEST_CASE("exported data: a safetensors file has a tensor for each input") {
  Scratch scratch("transformer");
  const at::Tensor ids = at::randint(0, 11, {4, 6}, at::kInt);
  const TensorDict columns = {{"input_ids", ids},
                              {"attention_mask", at::ones({4, 6}, at::kInt)},
                              {"labels", at::tensor({0, 1, 2, 0}, at::kInt)},
                              {"unused", at::ones({4})}};
  scratch.options.data = scratch.file("rows.safetensors").string();
  save_safetensors(scratch.options.data, columns);
  const TensorDict batch = scratch.first_batch(4);
  CHECK(batch.size() == 3);
  CHECK(at::equal(batch.at("input_ids"), ids.to(at::kLong)));
  CHECK((batch.at("labels").scalar_type() == at::kLong));
  CHECK(scratch.module->forward(batch).contains("loss"));
  CHECK(ExportedFiles(scratch.options, *scratch.module).compute_metrics() != nullptr);
}

TEST_CASE("exported data: texts are tokenized by the vocabulary beside the model") {
  Scratch scratch("transformer");
  write_file_atomically(scratch.file("vocab.txt"),
                        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n");
  scratch.write("rows.tsv", "text\tlabel\na b\tno\nf e d c b a\tyes\nc\tmaybe\n");
  const TensorDict batch = scratch.first_batch(2);
  // The length of the export is fixed, so rows are padded and cut to it.
  CHECK(at::equal(batch.at("input_ids"),
                  at::tensor({2, 5, 6, 3, 0, 0, 2, 10, 9, 8, 7, 3}, at::kLong).view({2, 6})));
  CHECK(batch.at("attention_mask").sum().item<std::int64_t>() == 10);
  CHECK(at::equal(batch.at("labels"), at::tensor({1, 2}, at::kLong)));
  const ExportedFiles files(scratch.options, *scratch.module);
  REQUIRE(files.extra_files().size() == 1);
  CHECK(files.compute_metrics() != nullptr);
  CHECK(files.extra_files()[0].filename() == "vocab.txt");
}

TEST_CASE("exported data: the names of classes are those of the configuration") {
  Scratch scratch("mlp");
  scratch.write("rows.tsv", "label\tx\nb\t[1, 2, 3, 4, 5]\na\t[1, 2, 3, 4, 5]\n");
  CHECK(contains(scratch.error(), "got 2 names (a, b), expected 3"));
  write_file_atomically(scratch.file("config.json"),
                        R"({"id2label": {"0": "c", "1": "b", "2": "a"}})");
  CHECK(at::equal(scratch.first_batch(2).at("labels"), at::tensor({1, 2}, at::kLong)));
  scratch.write("rows.tsv", "label\tx\nd\t[1, 2, 3, 4, 5]\na\t[1, 2, 3, 4, 5]\n");
  CHECK(contains(scratch.error(), "text.class"));
}

TEST_CASE("exported data: rows that do not fit the program are refused") {
  Scratch mlp("mlp");
  mlp.write("rows.tsv", "y\tlabel\n1\t0\n");
  CHECK(contains(mlp.error(), "there is no column \"x\": got [y, label]"));
  mlp.write("rows.tsv", "x\n[1,2,3,4,5]\n");
  CHECK(contains(mlp.error(), "text.missing-column"));
  mlp.write("rows.tsv", "x\tlabel\n[1,2,3,4,5]\t0\n[1,2]\t0\n");
  CHECK(contains(mlp.error(), "rows.tsv:3: column \"x\": got an array of [2]"));
  mlp.write("rows.tsv", "x\tlabel\n[1,2,3,4,5]\t0\n[1,2,3,4,z]\t0\n");
  CHECK(contains(mlp.error(), "text.number"));
  mlp.write("rows.tsv", "x\tlabel\n[1,2,3,4,5]\t3\n");
  CHECK(contains(mlp.error(), "data.labels"));
  mlp.write("rows.tsv", "x\tlabel\n[1,2,3,4,5]\tyes\n[1,2,3,4,5]\tno\n");
  CHECK(contains(mlp.error(), "train.labels"));
  CHECK(contains(mlp.error(), "got 2 names (no, yes), expected 3"));
  Scratch tied("tied");
  tied.options.data = tied.file("rows.safetensors").string();
  save_safetensors(tied.options.data, {{"input_ids", at::full({4, 6}, 11, at::kLong)},
                                       {"labels", at::ones({4, 6}, at::kLong)}});
  CHECK(contains(tied.error(), "data.ids"));
  save_safetensors(tied.options.data,
                   {{"input_ids", at::ones({4, 6})}, {"labels", at::ones({4, 6}, at::kLong)}});
  CHECK(contains(tied.error(), "column \"input_ids\": got Float, expected Long"));
  CHECK(ExportedFiles({.model = tied.options.model, .data = "dummy", .dummy_rows = 8}, *tied.module)
            .compute_metrics() == nullptr);
}

TEST_CASE("exported data: numbers that the type of an input would change are refused") {
  Scratch scratch("transformer");  // the inputs are int64
  const auto write = [&](const std::string& id) {
    scratch.write("rows.jsonl", "{\"input_ids\": [1, " + id +
                                    ", 3, 4, 5, 6], \"attention_mask\": [1, 1, 1, 1, 1, 1], "
                                    "\"labels\": 0}\n");
  };
  write("2");
  CHECK(scratch.error() == "none");
  write("2.5");
  CHECK(contains(scratch.error(), "text.number"));
  CHECK(contains(scratch.error(), "rows.jsonl:1: column \"input_ids\": got 2.5, expected a whole"));
  write("1e300");
  CHECK(contains(scratch.error(), "because the input is Long"));
}

TEST_CASE("exported data: rows for predictions need no labels") {
  for (const std::string name : {"transformer", "mlp"}) {
    CAPTURE(name);
    Scratch scratch(name);
    const std::string row = name == "mlp" ? "{\"x\": [1, 2, 3, 4, 5]}\n"
                                          : "{\"input_ids\": [1, 2, 3, 4, 5, 6], "
                                            "\"attention_mask\": [1, 1, 1, 1, 1, 1]}\n";
    scratch.write("rows.jsonl", row + row);
    CHECK(starts_with(scratch.error(), "text.missing-column"));
    scratch.options.eval_data = scratch.options.data;
    scratch.options.data.clear();
    const ExportedFiles files(scratch.options, *scratch.module, EvalLabels::optional);
    auto loader = files.eval().loader({.batch_size = 2});
    TensorDict batch = loader.begin()->as<TensorDict>();
    CHECK_FALSE(batch.contains("labels"));
    files.check_batches({}, 1);
    CHECK(static_cast<bool>(files.compute_loss()));
  }
}

TEST_CASE("exported data: batches that the export does not allow are refused before training") {
  Scratch scratch("mlp");
  scratch.options.data = "dummy";
  scratch.options.dummy_rows = 9;  // the export takes 2 to 64 rows
  const ExportedFiles files(scratch.options, *scratch.module);
  TrainingArguments arguments{.per_device_train_batch_size = 4};
  const auto code = [&](std::int64_t processes) {
    return code_of([&] { files.check_batches(arguments, processes); });
  };
  CHECK(code(1) == "exported.inputs");
  CHECK(code(2) == "exported.inputs");
  arguments.dataloader_drop_last = true;
  CHECK(code(1) == "none");
  arguments = {.per_device_train_batch_size = 3};
  CHECK(code(1) == "none");
  CHECK(code(3) == "none");
  CHECK(code(2) == "none");  // the process without rows in the last step repeats three rows
  arguments = {.per_device_train_batch_size = 1};
  CHECK(code(1) == "exported.inputs");
}

}  // namespace trainer_exported_data_test
