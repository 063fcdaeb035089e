// tern synth: a model file with random weights of a given shape, to measure speed without the real one.
#include <fmt/format.h>

#include <memory>

#include "cli/flags.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "synth/synth.h"

namespace tern::cli {
namespace {

struct Flags {
  std::string shape, type, embd_type, out;
  uint64_t seed = 1;
  int threads = 0;
  bool list = false;
};

TensorType parse_type(const std::string& name) {
  const TypeInfo* info = find_type(std::string_view(name));
  if (info == nullptr) throw UsageError(fmt::format("there is no tensor type '{}'", name));
  return info->type;
}

int list() {
  for (const synth::Shape& s : synth::shapes()) fmt::print("{:<18} {}\n", s.name, s.architecture);
  return 0;
}

int synth_model(const Flags& flags) {
  if (flags.list) return list();
  if (flags.shape.empty() || flags.type.empty() || flags.out.empty())
    throw UsageError("--shape, --type and -o are needed (--list names the shapes)");
  const synth::Shape& shape = synth::find_shape(flags.shape);
  ProgressLine line("writing", ProgressLine::Unit::kBytes);
  synth::Options options{.type = parse_type(flags.type),
                         .seed = flags.seed,
                         .threads = flags.threads,
                         .progress = [&](uint64_t done, uint64_t total) { line.update(done, total); }};
  if (!flags.embd_type.empty()) options.embd_type = parse_type(flags.embd_type);
  const synth::Report report = synth::write_model(flags.out, shape, options);
  line.finish();
  fmt::print("{}: {} tensors, {:.2f} G weights, {:.2f} GB\n", flags.out, report.tensors,
             static_cast<double>(report.weights) * 1e-9, static_cast<double>(report.bytes) * 1e-9);
  return 0;
}

}  // namespace

Action setup_synth(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  set.option("--shape", flags->shape, "which model's sizes");
  set.option("--type", flags->type, "format of the matrices, as GGUF spells it");
  set.option("--embd-type", flags->embd_type, "format of embedding and head (default: the shape's)");
  set.option("-s,--seed", flags->seed, "of the random weights");
  set.option("-t,--threads", flags->threads, "threads to use (0: the cores of this machine)").between(0, 1024);
  set.option("-o,--output", flags->out, "the file to write");
  set.flag("--list", flags->list, "name the shapes and stop");
  return [flags] { return synth_model(*flags); };
}

}  // namespace tern::cli
