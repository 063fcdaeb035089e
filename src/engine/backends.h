// The backends that this build can make, and what they ask of memory before anything is loaded.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "plan/plan.h"

namespace tern {

enum class BackendKind : uint8_t { kCpu, kRef, kCuda };
inline constexpr std::array kBackendKinds{BackendKind::kCpu, BackendKind::kCuda, BackendKind::kRef};
std::string_view backend_name(BackendKind kind) noexcept;  // "cpu", "ref", "cuda"

/// kUnsupported with one line of what to do where this build or machine has no such device.
std::unique_ptr<Backend> make_backend(BackendKind kind, int threads);
bool has_gpu() noexcept;

/// Tokens of a prompt to read at once. On a CPU 512 are 2% faster than 256, for twice the memory of activations: 23 MB
/// of a Llama 1B.
constexpr int32_t default_rows(BackendKind kind) noexcept {
  return kind == BackendKind::kCuda ? 2048 : 256;
}

/// Bytes that a weight takes in the layout of a backend.
uint64_t weight_bytes(BackendKind kind, const PlanWeight& w);

/// Memory that a model may take now: the rest is for the tokenizer, the system and growth.
struct MemoryBudget {
  uint64_t host = 0, gpu = 0;  // gpu: 0 for a backend that needs none
  uint64_t of(BackendKind kind) const noexcept { return kind == BackendKind::kCuda ? gpu : host; }
};
MemoryBudget memory_budget(BackendKind kind);

}  // namespace tern
