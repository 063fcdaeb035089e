#include "engine/rewrite.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "gguf/writer.h"
#include "plan/hadamard_fold.h"
#include "quant/format.h"
#include "quant/hadamard.h"
#include "quant/transcode.h"

namespace tern {
namespace {

constexpr std::string_view kFoldPrefix = "prism.hadamard.";

/// What is written in the place of a tensor.
struct Target {
  TensorType type;
  std::function<std::vector<std::byte>()> make{};  // empty: copy the bytes
};
using Choose = std::function<Target(const gguf::TensorInfo&)>;

RewriteReport rewrite(const gguf::File& file, gguf::Metadata metadata, const std::string& out, const Choose& choose,
                      const RewriteProgress& progress) {
  if (out.empty()) fail(ErrorCode::kInvalidArgument, "the file to write has no name");
  metadata.erase("general.file_type");  // it named the old format, and nothing may rely on it
  RewriteReport report;
  std::vector<Target> targets;
  gguf::Writer writer(out, metadata);
  for (const gguf::TensorInfo& t : file.tensors()) {
    targets.push_back(choose(t));
    writer.add_tensor(t.name, targets.back().type, {t.ne.begin(), t.ne.begin() + t.n_dims});
  }
  uint64_t done = 0, total = 0;
  for (const gguf::TensorInfo& t : file.tensors()) total += t.nbytes;
  for (size_t i = 0; i < targets.size(); ++i) {
    const gguf::TensorInfo& t = file.tensors()[i];
    ++report.tensors;
    if (targets[i].make) {
      const std::vector<std::byte> bytes = targets[i].make();
      writer.write_data(bytes);
      report.bytes += bytes.size();
      ++report.changed;
    } else {
      writer.write_data(file.bytes(t));
      report.bytes += t.nbytes;
    }
    done += t.nbytes;
    if (progress) progress(done, total);
  }
  writer.finish();
  return report;
}

bool is_ternary(TensorType type) {
  const quant::Format* format = quant::find_format(type);
  return format != nullptr && format->ternary;
}

/// Decodes every row of `t`, changes it and encodes it as `target`.
std::vector<std::byte> convert_rows(const gguf::File& file, const gguf::TensorInfo& t, TensorType target,
                                    const std::function<void(std::vector<float>& row)>& change) {
  const quant::Format* from = quant::find_format(t.type);
  const quant::Format* to = quant::find_format(target);
  CHECK(to != nullptr && to->encode != nullptr);
  if (from == nullptr)
    fail(ErrorCode::kUnsupported, "{} is stored as {}, which this engine cannot decode", t.name,
         type_info(t.type).name);
  const std::span<const std::byte> bytes = file.bytes(t);
  const float scale = quant::tensor_scale(t.type, bytes);
  const TypeInfo& info = type_info(t.type);
  const auto row_bytes = static_cast<size_t>(t.ne[0] / info.block_elements * info.block_bytes);
  std::vector<std::byte> out(gguf::tensor_bytes(target, t.ne));
  const size_t out_row_bytes = out.size() / static_cast<size_t>(t.rows());
  std::vector<float> row(static_cast<size_t>(t.ne[0]));
  for (int64_t r = 0; r < t.rows(); ++r) {
    from->decode(bytes.data() + static_cast<size_t>(r) * row_bytes, row.data(), t.ne[0], scale);
    change(row);
    to->encode(row.data(), out.data() + static_cast<size_t>(r) * out_row_bytes, t.ne[0], 1.0f);
  }
  return out;
}

/// The head geometry of a delta net whose folded ssm_out has grouped columns.
quant::HeadOrder head_order(const gguf::Metadata& metadata, int64_t width) {
  const std::string prefix = std::string(metadata.require_string("general.architecture")) + ".ssm.";
  const int64_t value_heads = metadata.require_int(prefix + "time_step_rank");
  const int64_t key_heads = metadata.require_int(prefix + "group_count");
  if (key_heads <= 0 || value_heads <= 0 || value_heads % key_heads != 0 || width % value_heads != 0)
    fail(ErrorCode::kBadFile, "{} value heads, {} key heads and {} columns of ssm_out do not go together", value_heads,
         key_heads, width);
  return {.k_heads = key_heads, .repeat = value_heads / key_heads, .head_dim = width / value_heads};
}

}  // namespace

RewriteReport transcode_file(const gguf::File& file, TensorType target, const std::string& out,
                             const RewriteProgress& progress) {
  if (!is_ternary(target))
    fail(ErrorCode::kUnsupported,
         "{} is not a ternary format: transcode moves between PTQ1_0, PQ2_0, TQ1_0, TQ2_0 and I2_S",
         type_info(target).name);
  const auto choose = [&](const gguf::TensorInfo& t) -> Target {
    if (!is_ternary(t.type) || t.type == target) return {.type = t.type};
    return {.type = target, .make = [&file, &t, target] { return quant::transcode(t, file.bytes(t), target); }};
  };
  if (std::none_of(file.tensors().begin(), file.tensors().end(), [](const auto& t) { return is_ternary(t.type); }))
    fail(ErrorCode::kInvalidArgument, "{} has no ternary weights: there is nothing to transcode", file.path());
  return rewrite(file, file.metadata(), out, choose, progress);
}

RewriteReport unfold_file(const gguf::File& file, TensorType target, const std::string& out,
                          const RewriteProgress& progress) {
  if (target != TensorType::F32 && target != TensorType::F16 && target != TensorType::Q8_0)
    fail(ErrorCode::kUnsupported, "a model is unfolded to F32, F16 or Q8_0, not to {}", type_info(target).name);
  const std::optional<HadamardFold> fold = HadamardFold::from_file(file);
  if (!fold)
    fail(ErrorCode::kInvalidArgument, "{} has no prism.hadamard keys: there is nothing to unfold", file.path());
  gguf::Metadata metadata = file.metadata();
  for (const auto& [key, value] : file.metadata().items())
    if (key.starts_with(kFoldPrefix)) metadata.erase(key);

  const auto choose = [&](const gguf::TensorInfo& t) -> Target {
    const bool rotated = fold->folded(t.name) || fold->inverse(t.name);
    if (!rotated && !is_ternary(t.type)) return {.type = t.type};
    const bool permuted = fold->gdn_v_grouped() && t.name.ends_with(".ssm_out.weight");
    return {.type = target, .make = [&, rotated, permuted] {
              std::vector<float> scratch;
              return convert_rows(file, t, target, [&](std::vector<float>& row) {
                if (!rotated) return;
                quant::unrotate(std::span(row), fold->signs(t.ne[0]), fold->block_size());
                if (!permuted) return;
                scratch.resize(row.size());
                quant::grouped_to_tiled(head_order(metadata, t.ne[0]), row, scratch);
                row.swap(scratch);
              });
            }};
  };
  return rewrite(file, metadata, out, choose, progress);
}

}  // namespace tern
