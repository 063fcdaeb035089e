// tern transcode: a model file in another format, without loss; or unfolded, for engines that lack the fold.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "engine/rewrite.h"

namespace tern::cli {
namespace {

struct Flags {
  FileFlags file;
  std::string type, out;
  bool unfold = false, force = false;
};

int transcode(const Flags& flags) {
  const TypeInfo* type = find_type(std::string_view(flags.type));
  if (type == nullptr) throw UsageError(fmt::format("there is no tensor type '{}'", flags.type));
  const gguf::File file = gguf::File::open(flags.file.resolve());
  std::error_code error;
  if (std::filesystem::equivalent(file.path(), flags.out, error))
    throw UsageError("the output is the input: give another name with -o");
  if (!flags.force && std::filesystem::exists(flags.out))
    fail(ErrorCode::kInvalidArgument, "{} exists: give another name, or --force to replace it", flags.out);
  ProgressLine line(flags.unfold ? "unfolding" : "transcoding", ProgressLine::Unit::kBytes);
  const auto progress = [&](uint64_t done, uint64_t total) { line.update(done, total); };
  const RewriteReport report = flags.unfold ? unfold_file(file, type->type, flags.out, progress)
                                            : transcode_file(file, type->type, flags.out, progress);
  line.finish();
  fmt::print(stderr, "{} of {} tensors became {}, {} of weights (from {})\n", report.changed, report.tensors,
             type->name, human_bytes(report.bytes), human_bytes(file.file_bytes()));
  fmt::print("{}\n", flags.out);
  return 0;
}

}  // namespace

Action setup_transcode(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->file.declare(set, false);
  set.option("-t,--type", flags->type, "PTQ1_0, PQ2_0, TQ1_0, TQ2_0 or I2_S; with --unfold F32, F16 or Q8_0")
      .required();
  set.option("-o,--output", flags->out, "the file to write").required();
  set.flag("--unfold", flags->unfold, "turn weights in a Hadamard-rotated basis back into plain ones");
  set.flag("--force", flags->force, "replace the output if it exists");
  return [flags] { return transcode(*flags); };
}

}  // namespace tern::cli
