#include "backend/cpu/matrix.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "backend/cpu/kernel_tier.h"
#include "backend/cpu/ops.h"
#include "base/error.h"
#include "quant/activation.h"

namespace tern::cpu {
namespace {

using quant::Activation;

struct IsaRow {
  Isa isa;
  std::string_view name;
  const Tier* tier;  // nullptr: not in this build, and neither are the ops
  const char* decoded_name;
  const Ops* ops;
};

#if defined(__x86_64__)
constexpr IsaRow kIsas[] = {
    {Isa::kScalar, "scalar", &kScalarTier, "decode_scalar", &kOpsScalar},
    {Isa::kAvx2, "avx2", &kAvx2Tier, "decode_avx2", &kOpsAvx2},
    {Isa::kAvxVnni, "avxvnni", &kAvxVnniTier, "decode_avxvnni", &kOpsAvx2},
    {Isa::kAvx512Vnni, "avx512vnni", &kAvx512VnniTier, "decode_avx512vnni", &kOpsAvx512},
    {Isa::kAvx512Amx, "avx512amx", &kAvx512AmxTier, "decode_avx512amx", &kOpsAvx512},
    {Isa::kNeonDot, "neondot", nullptr, nullptr, nullptr},
    {Isa::kNeonI8mm, "neoni8mm", nullptr, nullptr, nullptr},
};

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Cpuid cpuid(unsigned leaf, unsigned subleaf) noexcept {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}
/// The register state that the OS saves (XCR0): 0x6 AVX, 0xe6 AVX-512.
uint64_t saved_state() noexcept {
  if (!(cpuid(1, 0).c & bit_OSXSAVE)) return 0;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}
/// Linux saves the tile registers of processes that asked for it, all threads of them.
bool tiles_granted() noexcept {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  constexpr uint64_t kTileState = 3u << 17;
  return granted && (saved_state() & kTileState) == kTileState;
#else
  return false;
#endif
}
bool machine_runs(Isa isa) noexcept {
  if (isa == Isa::kScalar) return true;
  if (isa == Isa::kNeonDot || isa == Isa::kNeonI8mm) return false;
  constexpr unsigned kAvxVnniBit = 1u << 4;
  const Cpuid basic = cpuid(1, 0), extended = cpuid(7, 0);
  const bool avx2 =
      (saved_state() & 0x6) == 0x6 && (extended.b & bit_AVX2) && (basic.c & bit_FMA) && (basic.c & bit_F16C);
  if (isa == Isa::kAvx2 || !avx2) return avx2 && isa == Isa::kAvx2;
  if (isa == Isa::kAvxVnni) return extended.a >= 1 && (cpuid(7, 1).a & kAvxVnniBit);
  constexpr unsigned kB = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL,
                     kC = bit_AVX512VNNI | bit_AVX512VBMI;
  const bool avx512 = (saved_state() & 0xe6) == 0xe6 && (extended.b & kB) == kB && (extended.c & kC) == kC;
  if (isa == Isa::kAvx512Vnni || !avx512) return avx512;
  constexpr unsigned kTiles = 1u << 24 | 1u << 25;  // AMX-TILE, AMX-INT8
  return (extended.d & kTiles) == kTiles && tiles_granted();
}
#else
#if defined(__aarch64__)
constexpr const Tier *kDotTier = &kNeonDotTier, *kI8mmTier = &kNeonI8mmTier;
constexpr const Ops* kArmOps = &kOpsNeon;
#else
constexpr const Tier *kDotTier = nullptr, *kI8mmTier = nullptr;
constexpr const Ops* kArmOps = nullptr;
#endif
constexpr IsaRow kIsas[] = {
    {Isa::kScalar, "scalar", &kScalarTier, "decode_scalar", &kOpsScalar},
    {Isa::kAvx2, "avx2", nullptr, nullptr, nullptr},
    {Isa::kAvxVnni, "avxvnni", nullptr, nullptr, nullptr},
    {Isa::kAvx512Vnni, "avx512vnni", nullptr, nullptr, nullptr},
    {Isa::kAvx512Amx, "avx512amx", nullptr, nullptr, nullptr},
    {Isa::kNeonDot, "neondot", kDotTier, "decode_neondot", kArmOps},
    {Isa::kNeonI8mm, "neoni8mm", kI8mmTier, "decode_neoni8mm", kArmOps},
};
bool machine_runs(Isa isa) noexcept {
#if defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20, kInt8Matrix = 1ul << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
  const bool dot = (::getauxval(AT_HWCAP) & kDotProduct) != 0;
  if (isa == Isa::kNeonDot) return dot;
  if (isa == Isa::kNeonI8mm) return dot && (::getauxval(AT_HWCAP2) & kInt8Matrix) != 0;
#elif defined(__aarch64__)
  if (isa == Isa::kNeonDot) return true;  // every Apple M
#endif
  return isa == Isa::kScalar;
}
#endif

const IsaRow& row_of(Isa isa) noexcept {
  return kIsas[static_cast<size_t>(isa)];
}

/// The rounded row as f32. The integers of kI8Row pass through the end of the row's own memory: the float written at i
/// covers bytes up to 4i + 3, the integer read at i lies at 3 * cols + i, never behind it.
void round_to_floats(Activation rule, const float* x, int64_t cols, float* y) noexcept {
  const auto n = static_cast<size_t>(cols);
  if (rule == Activation::kI8Row) {
    auto* q = reinterpret_cast<int8_t*>(y) + 3 * n;
    float s = 0;
    quant::quantize_row(rule, {x, n}, q, &s);
    for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(q[i]) / s;
    return;
  }
  const auto group = static_cast<size_t>(quant::activation_group(rule, cols));
  for (size_t begin = 0; begin < n; begin += group) {
    const size_t count = std::min(group, n - begin);
    int8_t q[256];
    float scale = 0;
    quant::quantize_row(rule, {x + begin, count}, q, &scale);
    for (size_t i = 0; i < count; ++i) y[begin + i] = static_cast<float>(q[i]) * scale;
  }
}

template <Activation kRule>
void quantize_decoded(const float* x, int64_t cols, std::byte* act) noexcept {
  if constexpr (kRule == Activation::kF32) {
    copy_row(x, cols, act);
  } else {
    auto* y = reinterpret_cast<float*>(act);
    round_to_floats(kRule, x, cols, y);
    std::fill(y + cols, y + (cols + 15) / 16 * 16, 0.0f);
  }
}

/// A kernel of any format: supports every shape, reads the file's layout.
template <Activation kRule>
Kernel decoded_kernel(const IsaRow& isa, TensorType type) {
  return {.name = isa.decoded_name,
          .type = type,
          .rule = kRule,
          .row_unit = 4,
          .supports = [](int64_t, int64_t) noexcept { return true; },
          .holds = nullptr,
          .packed_bytes = [](int64_t, int64_t) noexcept -> size_t { return 0; },
          .pack = nullptr,
          .act_layout = [](int64_t cols) noexcept { return float_layout(kRule, cols); },
          .quantize = quantize_decoded<kRule>,
          .matmul = isa.tier->matmul_decoded};
}

std::vector<Kernel> build_table(const IsaRow& isa) {
  std::vector<Kernel> table;
  if (isa.tier == nullptr) return table;
  table.assign(isa.tier->kernels, isa.tier->kernels + isa.tier->count);
  for (const quant::Format& f : quant::formats()) {
    table.push_back(decoded_kernel<Activation::kF32>(isa, f.type));
    table.push_back(decoded_kernel<Activation::kI8x32>(isa, f.type));
    table.push_back(decoded_kernel<Activation::kI8x128>(isa, f.type));
    table.push_back(decoded_kernel<Activation::kI8x256>(isa, f.type));
    table.push_back(decoded_kernel<Activation::kI8Row>(isa, f.type));
  }
  return table;
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  return row_of(isa).name;
}

const Ops& ops_of(Isa isa) noexcept {
  return *row_of(isa).ops;
}

bool isa_available(Isa isa) noexcept {
  return row_of(isa).tier != nullptr && machine_runs(isa);
}

Isa detect_isa() noexcept {
  Isa best = Isa::kScalar;
  for (const IsaRow& row : kIsas) {
    if (isa_available(row.isa)) best = row.isa;
  }
  return best;
}

Isa isa_by_name(std::string_view name, std::string_view asked_by) {
  std::string known;
  for (const IsaRow& row : kIsas) {
    if (row.name == name) {
      if (isa_available(row.isa)) return row.isa;
      fail(ErrorCode::kInvalidArgument, "{}={}: this machine or this build does not run it; the best here is {}",
           asked_by, name, isa_name(detect_isa()));
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail(ErrorCode::kInvalidArgument, "{}={} is not a tier; there are {}", asked_by, name, known);
}

Isa select_isa() {
  const char* forced = std::getenv("TERN_CPU_ISA");
  return forced == nullptr || *forced == '\0' ? detect_isa() : isa_by_name(forced, "TERN_CPU_ISA");
}

ActLayout float_layout(Activation rule, int64_t cols) noexcept {
  return {.rule = rule, .cols = cols, .row_bytes = static_cast<size_t>((cols + 15) / 16 * 64), .generic = true};
}

void copy_row(const float* x, int64_t cols, std::byte* act) noexcept {
  std::memcpy(act, x, static_cast<size_t>(cols) * 4);
  std::memset(act + cols * 4, 0, static_cast<size_t>((cols + 15) / 16 * 16 - cols) * 4);
}

std::span<const Kernel> kernels(Isa isa) noexcept {
  static const auto tables = [] {
    std::array<std::vector<Kernel>, std::size(kIsas)> t;
    for (size_t i = 0; i < t.size(); ++i) t[i] = build_table(kIsas[i]);
    return t;
  }();
  return tables[static_cast<size_t>(isa)];
}

const Kernel& choose_kernel(Isa isa, TensorType type, Activation rule, int64_t rows, int64_t cols,
                            const std::function<bool(const Kernel&)>& holds) {
  for (const Kernel& k : kernels(isa)) {
    if (k.type == type && k.rule == rule && k.supports(rows, cols) && (!holds || holds(k))) return k;
  }
  fail(ErrorCode::kUnsupported, "no {} kernel multiplies {} weights: this engine cannot decode the format",
       isa_name(isa), type_info(type).name);
}

}  // namespace tern::cpu
