// The one virtual interface: a device that can hold a Plan's weights and run it against Steps.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/shortlist.h"
#include "gguf/file.h"
#include "plan/plan.h"
#include "plan/step.h"

namespace tern {

/// q4_0: keys in the basis of the Walsh-Hadamard transform over the largest power of two that divides a head, where no
/// dim stands out (docs/kv-cache.md).
/// kivi, kivi4: 2 and 4 bits, keys in groups of 32 tokens of one channel, values in groups of 32 channels of one token;
/// a query reads the tokens of its own page unquantised, as f16. Those live in recurrent-state slots.
enum class KvType : uint8_t { kF32, kF16, kQ8_0, kQ4_0, kKivi, kKivi4 };
inline constexpr std::array kKvTypes{KvType::kF32,  KvType::kF16,  KvType::kQ8_0,
                                     KvType::kQ4_0, KvType::kKivi, KvType::kKivi4};
std::string_view kv_type_name(KvType type) noexcept;  // "f32", "f16", "q8_0", "q4_0", "kivi", "kivi4"
/// Bits of a code of the kivi types, 0 of the others.
constexpr int kivi_bits(KvType type) noexcept {
  return type == KvType::kKivi ? 2 : type == KvType::kKivi4 ? 4 : 0;
}
/// Bytes of `n` values (a multiple of 32 for the quantised types).
int64_t kv_bytes(KvType type, int64_t n) noexcept;

/// Sizes of the memory of sequences.
struct CacheShape {
  int32_t pages = 0;        // KV pages of kPageTokens tokens, shared by all sequences
  int32_t state_slots = 0;  // recurrent-state slots
  KvType k = KvType::kF16, v = KvType::kF16;
  /// Whether the newest tokens of a sequence live in its state slot.
  bool has_tails() const noexcept { return kivi_bits(k) > 0 || kivi_bits(v) > 0; }
};
/// Bytes that a state slot holds of a layer's newest keys / values, f16: room for two pages of the kivi types.
int64_t tail_bytes(KvType type, int64_t page_values) noexcept;
inline constexpr int64_t kTailHeaderBytes = 64;  // of a slot that holds tails: which of the two pages is current
/// Bytes of all pages and slots of a plan.
int64_t cache_bytes(const Plan& plan, const CacheShape& shape) noexcept;

struct BackendInfo {
  std::string name;    // "ref", "cpu"
  std::string device;  // "AMD EPYC, 2 threads, avx512vnni"
  int threads = 1;
};

enum class ActivationMode : uint8_t {
  kNative,  // the rule of the weight's format, or of the family
  kF32,     // no rounding anywhere: to compare with float references
};

struct LoadOptions {
  ActivationMode activations = ActivationMode::kNative;
  std::function<void(uint64_t done, uint64_t total)> progress{};  // bytes of weights; called from the loading thread
};

/// Upper bounds that a Program is compiled for.
struct ProgramLimits {
  int32_t rows = 0;     // token rows of a Step
  int32_t outputs = 0;  // rows whose results are asked for
  int32_t seqs = 0;     // sequences in a Step
  /// A part of the loaded plan to run in its place; outlives the Program. Null: all of it.
  const Plan* part = nullptr;
};

/// What runs where: a row of `tern plan`.
struct OpReport {
  std::string kernel;        // name of the kernel chosen, e.g. "gemv_tq2_0_avx512vnni"
  std::string fused_into{};  // non-empty when another op's kernel computes this one
  uint64_t bytes = 0;        // weight bytes read a decode step
};

/// One op of an eager walk, handed to the trace sink right after it ran.
struct OpTrace {
  size_t op = 0;  // index into Plan::ops
  const float* data = nullptr;
  int64_t rows = 0, cols = 0;
  double seconds = 0;
};

/// A Plan compiled for a device and an upper bound of rows: kernels chosen, buffers placed. Owned by the caller, run by
/// the Backend that made it, and gone before it.
class Program {
 public:
  virtual ~Program() = default;
};

/// Where the results of a Step's output rows go. Without shortlists and tokens the Step's wishes do not count: all
/// logits are wanted.
struct Results {
  /// [out_rows, columns of the plan's result]. A row that wants something else may be left as it was.
  std::span<float> logits;
  /// [out_rows], of which those of rows that want candidates are written. Empty where no row does.
  std::span<Shortlist> shortlists{};
  /// [out_rows], of which those of rows that want a token are written. Empty where no row does.
  std::span<int32_t> tokens{};

  bool of_wishes() const noexcept { return !shortlists.empty() || !tokens.empty(); }
};
/// CHECKs that there is a wish for every output row or for none, and room for what they ask where they count.
void check_wishes(const Step& step, const Results& results);
/// What `row` wants in place of its logits, from them: for backends that leave all logits in memory.
void grant_wish(const Plan& plan, const Step& step, const Results& results, size_t row);

class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;
  /// Takes the weights of `plan` from `file` into the device's own layout. Both outlive the Backend. Called once.
  virtual void load(const Plan& plan, const gguf::File& file, const LoadOptions& options) = 0;
  /// Allocates the pages and slots, contents undefined. kOutOfMemory with the numbers. May be called again, between
  /// Steps.
  virtual void reserve(const CacheShape& shape) = 0;
  virtual std::unique_ptr<Program> compile(const ProgramLimits& limits) = 0;
  /// Memory for `floats` logits that run() fills without a copy in between; valid until the next call.
  virtual std::span<float> logits_memory(size_t floats) {
    logits_.resize(floats);
    return logits_;
  }
  /// Runs one Step; the results are complete on return. The Step is within the Program's limits.
  virtual void run(Program& program, const Step& step, const Results& results) = 0;
  /// Copies a recurrent-state slot / a KV page of every layer.
  virtual void copy_state(int32_t from, int32_t to) = 0;
  virtual void copy_page(int32_t from, int32_t to) = 0;
  /// One row an op of the plan, after load.
  virtual std::vector<OpReport> report() const = 0;
  /// Sees every op of the following runs (eager, unfused walk); an empty function turns it off.
  virtual void set_trace(std::function<void(const OpTrace&)> sink) = 0;

 private:
  std::vector<float> logits_;
};

}  // namespace tern
