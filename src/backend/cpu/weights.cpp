#include "backend/cpu/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "backend/activation_rule.h"
#include "base/checked.h"
#include "base/error.h"

namespace tern::cpu {
namespace {

constexpr size_t kAlign = 4096;              // of a matrix in the arena: no two share a page
constexpr uint64_t kPieceBytes = 512 << 10;  // of the file that one thread packs at a time
constexpr uint64_t kBatchBytes = 32 << 20;   // of the file between two reports and two releases of its pages

size_t file_row_bytes(const gguf::TensorInfo& t) {
  const TypeInfo& type = type_info(t.type);
  return static_cast<size_t>(t.ne[0] / type.block_elements * type.block_bytes);
}

/// Whether the layout of a kernel can hold the rows of a tensor. All threads look, and the pages of the file leave as
/// they go: those of a whole model would be in memory beside the packed ones.
bool holds(const Kernel& kernel, const Matrix& m, std::span<const std::byte> tensor, const gguf::File& file,
           ThreadPool& pool) {
  if (!kernel.holds) return true;
  const size_t row_bytes = tensor.size() / static_cast<size_t>(m.rows);
  const auto step = std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes / row_bytes));
  std::atomic<bool> all = true;
  pool.run({static_cast<uint32_t>(ceil_div(m.rows, step))}, [&](uint32_t begin, uint32_t end, int) {
    for (int64_t row = begin * step; row < std::min(m.rows, end * step) && all; row += step) {
      const int64_t n = std::min(step, m.rows - row);
      const auto part = tensor.subspan(static_cast<size_t>(row) * row_bytes, static_cast<size_t>(n) * row_bytes);
      if (!kernel.holds(part.data(), n, m.cols)) all = false;
      file.drop(part);
    }
  });
  return all;
}

/// The kernel of the user's choice where it fits, otherwise the best.
const Kernel& pick(const Weights::Options& options, TensorType type, quant::Activation rule, const Matrix& m,
                   const std::function<bool(const Kernel&)>& holds_all, bool* forced) {
  for (const Kernel& k : kernels(options.isa)) {
    if (options.force_kernel.empty()) break;
    if (k.type != type || k.rule != rule || std::string_view(k.name).find(options.force_kernel) == std::string::npos) {
      continue;
    }
    if (!k.supports(m.rows, m.cols) || !holds_all(k)) continue;
    *forced = true;
    return k;
  }
  return choose_kernel(options.isa, type, rule, m.rows, m.cols, holds_all);
}

size_t packed_bytes(const Matrix& m, size_t file_bytes) {
  return m.kernel->pack ? m.kernel->packed_bytes(m.rows, m.cols) : file_bytes;
}

std::vector<float> decode_vector(const gguf::TensorInfo& info, const quant::Format& format,
                                 std::span<const std::byte> bytes) {
  std::vector<float> out(static_cast<size_t>(info.elements()));
  format.decode(bytes.data(), out.data(), info.elements(), quant::tensor_scale(info.type, bytes));
  return out;
}

/// [channels][taps] as files hold it -> [taps][channels], so that channels run along the vectors.
std::vector<float> transpose(const std::vector<float>& x, int64_t taps) {
  std::vector<float> out(x.size());
  const size_t n = static_cast<size_t>(taps), channels = x.size() / n;
  for (size_t c = 0; c < channels; ++c) {
    for (size_t t = 0; t < n; ++t) out[t * channels + c] = x[c * n + t];
  }
  return out;
}

}  // namespace

/// Rows of one matrix that a thread packs in one go.
struct Weights::Piece {
  Matrix* matrix;
  const std::byte* tensor;  // of this matrix in the file
  size_t row_bytes;         // in the file
  int64_t row_begin, row_end;

  std::span<const std::byte> source() const {
    return {tensor + static_cast<size_t>(row_begin) * row_bytes, static_cast<size_t>(row_end - row_begin) * row_bytes};
  }
  void run() const {
    auto* const to = const_cast<std::byte*>(matrix->data);
    if (matrix->kernel->pack) {
      matrix->kernel->pack(tensor, matrix->rows, matrix->cols, to, row_begin, row_end);
    } else {
      std::memcpy(to + static_cast<size_t>(row_begin) * row_bytes, source().data(), source().size());
    }
  }
};

void Weights::load(const Plan& plan, const gguf::File& file, const LoadOptions& load, const Options& options,
                   ThreadPool& pool) {
  describe(plan, file, load, options, pool);
  size_t total = 0;
  for (const Entry& e : entries_) total += e.matrices.size() * round_up(e.matrix_bytes, kAlign);
  arena_ = Memory(total);
  size_t offset = 0;
  for (Entry& e : entries_) {
    for (Matrix& m : e.matrices) {
      m.data = arena_.data() + offset;
      offset += round_up(e.matrix_bytes, kAlign);
    }
    // A matrix in the file's layout is the table too: a row from memory in place of a system call.
    if (e.table.file && !e.matrices.empty() && !e.matrices.front().kernel->pack) {
      e.table.file = nullptr;
      e.table.bytes = {e.matrices.front().data, e.table.bytes.size()};
    }
  }
  pack(plan, file, load, pool);
}

void Weights::describe(const Plan& plan, const gguf::File& file, const LoadOptions& load, const Options& options,
                       ThreadPool& pool) {
  bool forced = options.force_kernel.empty();
  entries_.resize(plan.weights.size());
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const PlanWeight& w = plan.weights[i];
    const quant::Format* format = quant::find_format(w.info.type);
    if (!format) {
      fail(ErrorCode::kUnsupported, "tensor '{}' is {}, which this engine cannot decode", w.name,
           type_info(w.info.type).name);
    }
    Entry& e = entries_[i];
    const std::span<const std::byte> bytes = file.bytes(w.info);
    const float scale = quant::tensor_scale(w.info.type, bytes);
    if (w.use == WeightUse::kVector) e.vector = decode_vector(w.info, *format, bytes);
    if (w.use == WeightUse::kTable || w.also_table) {
      e.table = {format, &file, bytes, file_row_bytes(w.info), w.info.ne[1], w.info.ne[0], scale};
    }
    if (w.use != WeightUse::kMatrix && w.use != WeightUse::kExperts) continue;
    Matrix m{.kernel = nullptr, .rows = w.info.ne[1], .cols = w.info.ne[0], .data = nullptr, .tensor_scale = scale};
    const quant::Activation rule = activation_rule(plan, *format, load.activations);
    const size_t file_bytes = file_row_bytes(w.info) * static_cast<size_t>(m.rows);
    const Matrix all{.kernel = nullptr, .rows = m.rows * w.info.ne[2], .cols = m.cols};  // the experts share one kernel
    const auto holds_all = [&](const Kernel& k) {
      return holds(k, all, bytes.first(file_row_bytes(w.info) * static_cast<size_t>(all.rows)), file, pool);
    };
    m.kernel = &pick(options, w.info.type, rule, all, holds_all, &forced);
    e.matrix_bytes = packed_bytes(m, file_bytes);
    e.matrices.assign(static_cast<size_t>(w.info.ne[2]), m);
  }
  for (const Op& op : plan.ops) {
    const auto* conv = std::get_if<ConvArgs>(&op.args);
    if (conv) entries_[static_cast<size_t>(conv->kernel.id)].vector = transpose(at(conv->kernel).vector, conv->taps);
  }
  if (!forced) {
    fail(ErrorCode::kInvalidArgument,
         "no {} kernel named '{}' fits a weight of this model; `tern plan` lists what was chosen",
         isa_name(options.isa), options.force_kernel);
  }
}

void Weights::pack(const Plan& plan, const gguf::File& file, const LoadOptions& load, ThreadPool& pool) {
  std::vector<Piece> pieces;
  uint64_t total = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const gguf::TensorInfo& info = plan.weights[i].info;
    const size_t row_bytes = file_row_bytes(info);
    const std::byte* tensor = file.bytes(info).data();
    for (Matrix& m : entries_[i].matrices) {
      const int64_t step =
          round_up(std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes / row_bytes)), m.kernel->row_unit);
      for (int64_t row = 0; row < m.rows; row += step) {
        pieces.push_back({&m, tensor, row_bytes, row, std::min(m.rows, row + step)});
        total += pieces.back().source().size();
      }
      tensor += row_bytes * static_cast<size_t>(m.rows);
    }
  }
  uint64_t done = 0;
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin;
    uint64_t batch = 0;
    while (end < pieces.size() && batch < kBatchBytes) batch += pieces[end++].source().size();
    pool.run({static_cast<uint32_t>(end - begin)}, [&](uint32_t from, uint32_t to, int) {
      for (uint32_t i = from; i < to; ++i) pieces[begin + i].run();
    });
    for (; begin < end; ++begin) file.drop(pieces[begin].source());
    done += batch;
    if (load.progress) load.progress(done, total);
  }
}

}  // namespace tern::cpu
