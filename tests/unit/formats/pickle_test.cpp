// Files of torch.save and torch::save: weights are read, and every other pickle is refused.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/pytorch_optimizer.h"
#include "hasten/formats/pytorch_file.h"
#include "hasten/formats/safetensors.h"
#include "unit/code_of.h"
#include "unit/exported/edited_archive.h"
#include "unit/peak_memory.h"

namespace formats_pickle_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

const fs::path data = fs::path(HASTEN_TEST_DATA) / "oracle/data/pickles";
constexpr PyTorchFileOptions kAllowed{.allow_pickle = true};

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}
std::string text(const std::string& value) { return 'X' + number(value.size(), 4) + value; }
std::string integer(std::uint64_t value) { return "\x8a\x08" + number(value, 8); }
std::string name(const char* module, const char* of) { return str('c', module, '\n', of, '\n'); }
std::string tuple(const std::string& values) { return '(' + values + 't'; }
std::string storage(const char* type = "FloatStorage", std::uint64_t elements = 4,
                    const char* key = "0") {
  return tuple(text("storage") + name("torch", type) + text(key) + text("cpu") +
               integer(elements)) +
         'Q';
}
std::string tensor(std::uint64_t offset, const std::string& sizes, const std::string& strides,
                   const std::string& of = storage()) {
  return name("torch._utils", "_rebuild_tensor_v2") +
         tuple(of + integer(offset) + tuple(sizes) + tuple(strides) + "\x89" + "N") + 'R';
}
const std::string kFour = tensor(0, integer(4), integer(1));

// A file with a pickle of these instructions and a storage, which has four floats by default.
struct PickleFile {
  explicit PickleFile(const std::string& instructions, std::size_t storage_bytes = 16) {
    EditedArchive archive(data / "zoo.bin");
    archive.records = {{"data.pkl", "\x80\x02" + instructions},
                       {"data/0", std::string(storage_bytes, '\0')}};
    write_file_atomically(path, archive.bytes());
  }
  // Returns the code and the text of the error.
  std::string error() const {
    try {
      load_pytorch_weights(path, kAllowed);
    } catch (const Error& error) {
      return error.code() + ": " + error.what();
    }
    return "none";
  }
  TemporaryDirectory folder;
  fs::path path = folder.path() / "x.bin";
};

std::string error_of(const std::string& instructions) { return PickleFile(instructions).error(); }
std::string error_of_value(const std::string& value) {
  return error_of("}" + text("a") + value + "s.");
}
bool begins_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

struct ChildImpl : torch::nn::Module {
  ChildImpl() : linear(register_module("linear", torch::nn::Linear(2, 3))) {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    scale = register_parameter("scale", torch::full({2}, 1.5));
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Child);

}  // namespace

TEST_CASE("pickle: every tensor of torch.save is read with its type, sizes and strides") {
  const TensorDict read = load_pytorch_weights(data / "zoo.bin", kAllowed);
  const TensorDict expected = load_safetensors(data / "zoo.safetensors");
  REQUIRE(read.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    const at::Tensor& own = tensor_at(read, name);
    CHECK((own.scalar_type() == tensor.scalar_type()));
    REQUIRE(own.sizes() == tensor.sizes());
    CHECK((own.contiguous().view(-1).view(at::kByte).equal(tensor.view(-1).view(at::kByte))));
  }
  CHECK(tensor_at(read, "transposed").strides() == at::IntArrayRef({1, 3}));
}

TEST_CASE("pickle: reading requires allow_pickle") {
  CHECK(code_of([] { load_pytorch_weights(data / "zoo.bin"); }) == "pickle.not-allowed");
  const TemporaryDirectory folder;
  CHECK(code_of([&] {
          convert_pytorch_weights(data / "zoo.bin", folder.path() / "x.safetensors");
        }) == "pickle.not-allowed");
  CHECK(fs::is_empty(folder.path()));
  CHECK(code_of([&] { load_pytorch_weights(folder.path() / "missing.bin"); }) == "io.not-found");
}

TEST_CASE("pickle: a module that torch::save wrote has the names of its tensors") {
  const TemporaryDirectory folder;
  const Child child;
  child->norm->running_mean.fill_(0.25);
  torch::save(child, (folder.path() / "child.pt").string());
  const TensorDict read = load_pytorch_weights(folder.path() / "child.pt", kAllowed);
  std::size_t tensors = 0;
  for (const auto& list : {child->named_parameters(), child->named_buffers()}) {
    for (const auto& item : list) {
      CAPTURE(item.key());
      CHECK(tensor_at(read, item.key()).equal(item.value()));
      ++tensors;
    }
  }
  CHECK(read.size() == tensors);
}

TEST_CASE("pickle: conversion writes tied names once, and joins files of an index") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "tied.safetensors";
  CHECK(convert_pytorch_weights(data / "tied.bin", file, kAllowed).size() == 2);
  CHECK(SafetensorsFile(file).metadata().at("b") == "a");
  convert_pytorch_weights(data / "sharded", folder.path() / "whole", kAllowed);
  const TensorDict whole = load_safetensors(folder.path() / "whole/model.safetensors");
  CHECK(whole.size() == 2);
  CHECK(whole.at("a").equal(torch::ones(2)));
  convert_pytorch_weights(data / "zoo.bin", file, kAllowed);
  CHECK(read_file(file) == read_file(data / "zoo.safetensors"));
}

TEST_CASE("pickle: conversion does not write into a checkpoint, and one file has no shards") {
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "hasten_manifest.json", "{}");
  for (const char* target : {"", "model.safetensors", "weights"}) {
    CAPTURE(target);
    CHECK(code_of([&] {
            convert_pytorch_weights(data / "zoo.bin", folder.path() / target, kAllowed);
          }) == "weights.merge-target");
  }
  CHECK_FALSE(fs::exists(folder.path() / "model.safetensors"));
  const TemporaryDirectory other;
  CHECK(code_of([&] {
          convert_pytorch_weights(data / "zoo.bin", other.path() / "x.safetensors",
                                  {.allow_pickle = true, .max_shard_size = 100});
        }) == "weights.shard-size");
}

TEST_CASE("pickle: each kind of file that is not weights has its error code") {
  CHECK(code_of([] { load_pytorch_weights(data / "nested.bin", kAllowed); }) ==
        "pickle.not-weights");
  CHECK(code_of([] { load_pytorch_weights(data / "sgd.pt", kAllowed); }) == "pickle.not-weights");
  CHECK(code_of([] { load_pytorch_weights(data / "tensor.bin", kAllowed); }) == "pickle.damaged");
  CHECK(code_of([] { load_pytorch_weights(data / "old.bin", kAllowed); }) == "pickle.archive");
  CHECK(code_of([] { load_pytorch_weights(data / "zoo.safetensors", kAllowed); }) ==
        "pickle.archive");
}

TEST_CASE("pickle: a pipe is refused") {
  const TemporaryDirectory folder;
  const fs::path pipe = folder.path() / "x.bin";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(code_of([&] { load_pytorch_weights(pipe, kAllowed); }) == "io.not-a-file");
}

TEST_CASE("pickle: names other than those of tensors are refused, and nothing is executed") {
  const TemporaryDirectory folder;
  const std::string mark = (folder.path() / "executed").string();
  struct Attack {
    const char *module, *of;
  };
  for (const auto& [module, of] :
       {Attack{"os", "system"}, Attack{"posix", "system"}, Attack{"builtins", "eval"},
        Attack{"builtins", "exec"}, Attack{"builtins", "getattr"}, Attack{"subprocess", "Popen"},
        Attack{"torch", "load"}, Attack{"torch._utils", "_rebuild_tensor"},
        Attack{"torch._utils", "_rebuild_tensor_v2.__globals__"}, Attack{"collections", "deque"},
        Attack{"torch.storage", "_load_from_bytes"}, Attack{"torch", "FloatStorage.__init__"}}) {
    CAPTURE(module);
    CAPTURE(of);
    const std::string error = error_of(name(module, of) + tuple(text("touch " + mark)) + 'R' + '.');
    CHECK(begins_with(error, "pickle.forbidden: "));
    CHECK(error.find(str(module, '.', of)) != std::string::npos);
  }
  CHECK(fs::is_empty(folder.path()));
  // The known names cannot be called as functions either.
  CHECK(begins_with(error_of(name("torch", "FloatStorage") + tuple(integer(1)) + "R."),
                    "pickle.forbidden"));
  CHECK(begins_with(error_of(name("__torch__", "Module") + tuple("") + "R."), "pickle.forbidden"));
  CHECK(begins_with(error_of(name("collections", "OrderedDict") + tuple("") + "\x81."),
                    "pickle.forbidden"));
  CHECK(begins_with(error_of(text("a") + tuple("") + "R."), "pickle.forbidden"));
}

TEST_CASE("pickle: the step of an optimizer is one whole number") {
  const TemporaryDirectory folder;
  const at::Tensor weight =
      load_safetensors(data / "adam_amsgrad.safetensors").at("before").clone();
  torch::optim::Adam adam({weight.requires_grad_()}, torch::optim::AdamOptions(1.0));
  EditedArchive archive(data / "adam_amsgrad.pt");
  REQUIRE(archive.records.at("data/0").size() == 4);
  for (const float step : {-1.0f, 0.5f, 1e30f, std::nanf("")}) {
    CAPTURE(step);
    archive.records["data/0"] = std::string(reinterpret_cast<const char*>(&step), sizeof step);
    write_file_atomically(folder.path() / "x.pt", archive.bytes());
    CHECK(code_of([&] { load_pytorch_optimizer(folder.path() / "x.pt", adam, kAllowed); }) ==
          "checkpoint.pytorch-state");
    CHECK(adam.state().empty());
  }
}

TEST_CASE("pickle: a state that two parameters of an optimizer share is refused") {
  const std::string state = "}" + text("momentum_buffer") + kFour + "s", at_0("q\0", 2),
                    same("h\0", 2);
  const auto file_of = [&](const std::string& second) {
    const std::string group = "}" + text("lr") + integer(1) + "s" + text("momentum") + integer(1) +
                              "s" + text("dampening") + integer(0) + "s" + text("weight_decay") +
                              integer(0) + "s" + text("nesterov") + "\x89s" + text("params") +
                              "](" + integer(0) + integer(1) + "es";
    return "}" + text("state") + "}" + integer(0) + "}" + at_0 + state.substr(1) + "s" +
           integer(1) + second + "ss" + text("param_groups") + "]" + group + "as.";
  };
  const auto code = [&](const std::string& second) {
    const PickleFile file(file_of(second));
    const std::vector<at::Tensor> parameters = {at::zeros({4}).requires_grad_(),
                                                at::zeros({4}).requires_grad_()};
    torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(1.0));
    const std::string code = code_of([&] { load_pytorch_optimizer(file.path, sgd, kAllowed); });
    CHECK(sgd.state().size() == (code == "none" ? 2U : 0U));
    return code;
  };
  CHECK(code(state) == "none");
  CHECK(code(same) == "checkpoint.pytorch-state");
}

TEST_CASE("pickle: every instruction that PyTorch does not write is refused") {
  const std::string known =
      "NKMJGX}])(tsuaeqrhjcQRb."
      "\x88\x89\x8a\x85\x86\x87\x81";
  for (int instruction = 0; instruction < 256; ++instruction) {
    if (known.find(static_cast<char>(instruction)) != std::string::npos) continue;
    CAPTURE(instruction);
    const std::string error = error_of(static_cast<char>(instruction) + std::string("....."));
    CHECK(error.find(str("the instruction ", instruction)) != std::string::npos);
  }
}

TEST_CASE("pickle: a tensor outside its storage or with more elements than it is refused") {
  CHECK(error_of_value(kFour) == "none");
  CHECK(error_of_value(tensor(1, integer(3), integer(1))) == "none");
  CHECK(error_of_value(tensor(4, integer(0), integer(1))) == "none");
  const std::string two = integer(2) + integer(2);
  const std::uint64_t huge = std::uint64_t{1} << 62, minus_one = ~std::uint64_t{0};
  for (const std::string& bad :
       {tensor(1, integer(4), integer(1)), tensor(0, integer(5), integer(1)),
        tensor(0, integer(4), integer(2)), tensor(5, integer(0), integer(1)),
        tensor(minus_one, integer(1), integer(1)), tensor(0, integer(minus_one), integer(1)),
        tensor(0, integer(2), integer(minus_one)), tensor(0, integer(huge), integer(0)),
        tensor(0, integer(huge) + integer(huge), integer(0) + integer(0)),
        tensor(0, integer(2), integer(huge)), tensor(huge, integer(2), integer(huge)),
        tensor(0, two, integer(1)), tensor(0, text("4"), integer(1)),
        tensor(0, integer(4), integer(1), storage("DoubleStorage")),
        tensor(0, integer(4), integer(1), storage("FloatStorage", 5)),
        tensor(0, integer(4), integer(1), storage("FloatStorage", minus_one)),
        tensor(0, integer(4), integer(1), integer(1))}) {
    CHECK(begins_with(error_of_value(bad), "pickle.damaged"));
  }
  // The archive has no storage with these names, and some of the names lead out of the archive.
  for (const char* key : {"1", "../data.pkl", "/etc/passwd", ""})
    CHECK(begins_with(
        error_of_value(tensor(0, integer(4), integer(1), storage("FloatStorage", 4, key))),
        "pickle.archive"));
  std::string sizes;
  for (int i = 0; i < 65; ++i) sizes += integer(1);
  CHECK(begins_with(error_of_value(tensor(0, sizes, sizes)), "pickle.damaged"));
}

TEST_CASE("pickle: views that overlap are not written, as a small file would become a large one") {
  const auto view = [](std::uint64_t offset, std::uint64_t size) {
    return tensor(offset, integer(size), integer(2), storage("FloatStorage", 6));
  };
  const auto code = [&](const std::string& more) {
    const PickleFile file(
        "}" + text("even") + view(0, 3) + "s" + text("odd") + view(1, 3) + "s" + more + ".", 24);
    CHECK(file.error() == "none");
    const fs::path target = file.folder.path() / "x.safetensors";
    const std::string code = code_of([&] { convert_pytorch_weights(file.path, target, kAllowed); });
    CHECK(fs::exists(target) == (code == "none"));
    return code;
  };
  CHECK(code("") == "none");
  CHECK(code(text("same") + view(1, 3) + "s") == "none");
  CHECK(code(text("part") + view(2, 2) + "s") == "pickle.shared");
}

TEST_CASE("pickle: hooks and metadata of tensors are refused") {
  const auto with = [](const std::string& last) {
    return name("torch._utils", "_rebuild_tensor_v2") +
           tuple(storage() + integer(0) + tuple(integer(4)) + tuple(integer(1)) + last) + 'R';
  };
  CHECK(error_of_value(with("\x89}")) == "none");
  CHECK(begins_with(error_of_value(with("\x89}" + text("a") + "Ns")), "pickle.forbidden"));
  CHECK(begins_with(error_of_value(with("\x89N}")), "pickle.forbidden"));
}

TEST_CASE("pickle: deep, large and circular values are refused") {
  const std::string million(1'000'000, ']');
  CHECK(begins_with(error_of(million + '.'), "pickle.damaged"));  // more values than allowed
  std::string nested(10'000, '(');
  CHECK(begins_with(error_of(nested + std::string(10'000, 't') + '.'), "pickle.damaged"));
  // Each list contains the previous list twice.
  std::string doubled = "]q";
  doubled += '\0';
  for (int i = 0; i < 100; ++i)
    doubled += "]q" + number(static_cast<std::uint64_t>(i) + 1, 1) + "(h" + number(i, 1) + 'h' +
               number(i, 1) + 'e';
  CHECK(begins_with(error_of("}" + text("a") + doubled + "s."), "pickle.damaged"));
  // First a dictionary and then a module contains itself.
  CHECK(begins_with(error_of(std::string("}q\0", 3) + text("a") + std::string("h\0s.", 4)),
                    "pickle.not-weights"));
  const std::string module = name("__torch__", "Module") + ")\x81" + std::string("q\0", 2);
  CHECK(
      begins_with(error_of(module + "}" + text("a") + std::string("h\0sb.", 5)), "pickle.damaged"));
  // The memo would have four billion entries.
  CHECK(begins_with(error_of("]r" + number(0xFFFFFFFF, 4) + '.'), "pickle.damaged"));
  CHECK(begins_with(error_of("j" + number(0xFFFFFFFF, 4) + '.'), "pickle.damaged"));
}

TEST_CASE("pickle: a file of some MiB takes at most eight times its size and 16 MiB") {
  std::string numbers, lists;
  for (int i = 0; i < 1'000'000; ++i) {
    numbers += "K\1";
    lists += "]";
  }
  for (const std::string& values : {numbers, lists}) {
    const PickleFile file("}" + text("a") + "](" + values + "es.");
    const long size = static_cast<long>(fs::file_size(file.path) >> 10);
    const long before = test::peak_memory_kib();
    CHECK(begins_with(file.error(), "pickle."));
    CHECK(test::peak_memory_kib() - before < ((16 << 10) + 8 * size) * test::kMemoryPerByte);
  }
}

TEST_CASE("pickle: two tensors of a module with one full name are refused") {
  const std::string module = name("__torch__", "M") + ")\x81";
  const auto nested = [&](const char* key) {
    return module + "}" + text("a") + module + "}" + text("b") + kFour + "sbs" + text(key) + kFour +
           "sb.";
  };
  CHECK(error_of(nested("a.c")) == "none");
  CHECK(begins_with(error_of(nested("a.b")), "pickle.damaged"));
}

TEST_CASE("pickle: modules in modules are limited, and a module is in one place") {
  std::string module = name("__torch__", "M") + ")\x81";
  std::string open, close;
  for (int i = 0; i < 70; ++i) {
    open += module + "}" + text("m");
    close += "sb";
  }
  CHECK(begins_with(error_of(open + kFour + close + '.'), "pickle.damaged"));
  CHECK(error_of(module + "}" + text("m") + kFour + "sb.") == "none");
}

TEST_CASE("pickle: a file of many small tensors is read") {
  const std::string zero(1, '\0');
  // The first use of a name or a text puts it into the memo, as PyTorch does.
  const auto once = [](bool is_first, const std::string& value, int place) {
    return (is_first ? value + 'q' : std::string("h")) +
           number(static_cast<std::uint64_t>(place), 1);
  };
  EditedArchive archive(data / "zoo.bin");
  archive.records.clear();
  std::string pickle = "\x80\x02}(";
  constexpr int kTensors = 10'000;
  for (int i = 0; i < kTensors; ++i) {
    const bool is_first = i == 0;
    pickle += text(str("layers.", i, ".scale")) +
              once(is_first, name("torch._utils", "_rebuild_tensor_v2"), 0) + "((" +
              once(is_first, text("storage"), 1) +
              once(is_first, name("torch", "FloatStorage"), 2) + text(str(i)) +
              once(is_first, text("cpu"), 3) + "K\1tQK" + zero + "))\x89" +
              once(is_first, name("collections", "OrderedDict"), 4) + ")RtR";
    archive.records[str("data/", i)] = std::string(4, '\0');
  }
  archive.records["data.pkl"] = pickle + "u.";
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "x.bin", archive.bytes());
  CHECK(load_pytorch_weights(folder.path() / "x.bin", kAllowed).size() == kTensors);
}

TEST_CASE("pickle: the full names of a module's tensors are limited") {
  const std::string module = name("__torch__", "M") + ")\x81";
  const auto error = [&](std::size_t length) {
    std::string members = text("first") + kFour + std::string("q\0s", 3);
    for (int i = 0; i < 100; ++i) members += text(str("m", i)) + std::string("h\0s", 3);
    return error_of(module + "}" + text(std::string(length, 'x')) + module + "}" + members + "b" +
                    "sb.");
  };
  CHECK(error(1000) == "none");
  CHECK(error(1'000'000).find("longer names than a file of this size may have") !=
        std::string::npos);
}

TEST_CASE("pickle: truncated and doubled content is refused") {
  EditedArchive archive(data / "zoo.bin");
  const std::string pickle = archive.records.at("data.pkl");
  const TemporaryDirectory folder;
  for (std::size_t end = 0; end < pickle.size(); end += 7) {
    archive.records["data.pkl"] = pickle.substr(0, end);
    write_file_atomically(folder.path() / "x.bin", archive.bytes());
    CHECK(code_of([&] { load_pytorch_weights(folder.path() / "x.bin", kAllowed); }) ==
          "pickle.damaged");
  }
  CHECK(begins_with(error_of("}" + text("a") + kFour + "s" + text("a") + kFour + "s."),
                    "pickle.damaged"));
  CHECK(begins_with(error_of("}.}"), "pickle.damaged"));
  CHECK(begins_with(error_of("}}."), "pickle.damaged"));
  CHECK(begins_with(error_of("(}."), "pickle.damaged"));
  CHECK(begins_with(error_of("}(" + text("a") + "u."), "pickle.damaged"));
  CHECK(begins_with(error_of("}" + text("\xff") + kFour + "s."), "pickle.damaged"));
}

}  // namespace formats_pickle_test
