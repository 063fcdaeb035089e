// Weights of the CPU backend and the matrix products over them: one table of kernels, (weight format x activation rule
// x ISA). The walker (program.cpp) knows only this header; kernels live in kernels_<isa>.cpp and know nothing of plans.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/memory.h"
#include "gguf/types.h"
#include "quant/format.h"

namespace tern::cpu {

struct Ops;

/// Instruction-set tiers, worst first within an architecture.
enum class Isa : uint8_t { kScalar, kAvx2, kAvxVnni, kAvx512Vnni, kAvx512Amx, kNeonDot, kNeonI8mm };
std::string_view isa_name(Isa isa) noexcept;  // as TERN_CPU_ISA spells it: "avx512vnni"
/// What a tier of this build computes beside matrix products; several share a table.
const Ops& ops_of(Isa isa) noexcept;
/// True when this machine (cpuid and the OS's saved state) runs `isa`. kAvx512Vnni also asks for VBMI: Ice Lake, Zen 4.
/// kAvx512Amx asks for int8 tiles as well, and Linux once for the process's permission to use them: Sapphire Rapids.
bool isa_available(Isa isa) noexcept;
/// The best tier that this machine runs.
Isa detect_isa() noexcept;
/// The tier `name`, which `asked_by` wants; kInvalidArgument when it is unknown or this machine cannot run it.
Isa isa_by_name(std::string_view name, std::string_view asked_by);
/// detect_isa(), or the tier TERN_CPU_ISA names.
Isa select_isa();

/// Activations rounded by `rule`, in the layout that the kernels of one ISA read: row r at r * row_bytes. Rows of two
/// kernels are interchangeable when their rule, cols and `generic` are equal: one quantisation serves all users.
struct ActLayout {
  quant::Activation rule = quant::Activation::kF32;
  int64_t cols = 0;
  size_t row_bytes = 0;
  bool generic = false;  // f32 values, rounded by `rule`: what the kernels without integer arithmetic read
};

struct Matrix;

/// y[r][i] for i in [row_begin, row_end) and every activation row r in [0, act_rows): out[r * out_stride + i].
struct MatmulArgs {
  const Matrix* w = nullptr;
  const std::byte* act = nullptr;  // 64-byte aligned; act_rows rows of act_layout
  int64_t act_rows = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t row_begin = 0, row_end = 0;  // multiples of Kernel::row_unit, or the end of the matrix
};

/// One way to multiply one format under one rule. `name` is what `tern plan` prints and `--force-kernel` matches.
struct Kernel {
  const char* name;
  TensorType type;
  quant::Activation rule;
  int64_t row_unit;  // rows that are interleaved: threads split at multiples of it
  /// True when this kernel multiplies a matrix of `cols` columns: a promise, for weights that `holds` accepts.
  bool (*supports)(int64_t rows, int64_t cols) noexcept;
  /// True when the packed layout can hold these weights (base-3 cannot hold the code of +2); nullptr: it holds any.
  bool (*holds)(const std::byte* tensor, int64_t rows, int64_t cols) noexcept;
  size_t (*packed_bytes)(int64_t rows, int64_t cols) noexcept;
  /// Repacks rows [row_begin, row_end) of the file's tensor into `packed` (64-byte aligned; the range obeys row_unit);
  /// nullptr: the file's layout is used as it is.
  void (*pack)(const std::byte* tensor, int64_t rows, int64_t cols, std::byte* packed, int64_t row_begin,
               int64_t row_end) noexcept;
  ActLayout (*act_layout)(int64_t cols) noexcept;
  /// Rounds one row x[cols] into the layout.
  void (*quantize)(const float* x, int64_t cols, std::byte* act) noexcept;
  /// Any act_rows >= 1; picks a matrix-vector or a tiled body itself.
  void (*matmul)(const MatmulArgs& args) noexcept;
};

/// A weight [rows, cols] as a kernel reads it.
struct Matrix {
  const Kernel* kernel = nullptr;
  int64_t rows = 0, cols = 0;
  const std::byte* data = nullptr;  // packed (owned by the loader's memory) or the mapped file
  float tensor_scale = 1.0f;        // I2_S: the scale of the tensor
};

/// Every kernel of `isa`, best first for a given format and rule; the generic ones (decode + dot) last.
std::span<const Kernel> kernels(Isa isa) noexcept;
/// The first kernel of the tier (or of the generic ones) that supports the product and of which `holds` is true: that
/// its layout can hold the weights (empty: of every one). Never fails for a decodable format.
const Kernel& choose_kernel(Isa isa, TensorType type, quant::Activation rule, int64_t rows, int64_t cols,
                            const std::function<bool(const Kernel&)>& holds = {});

}  // namespace tern::cpu
