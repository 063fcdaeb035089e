// How a plan is walked on a GPU: its ops written down as nodes, each one or a few launches over buffers of one arena.
//
// Fused, a node may stand for several ops: products over the same activation share a launch, and a rotation in front of
// a product is done where the product's activations are rounded. Unfused, every op has nodes of its own: what a trace
// shows.
#pragma once
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cache_memory.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/weights.h"

namespace tern::cuda {

/// What a node is launched with: counts of a Step and addresses.
struct Launch {
  cudaStream_t stream = nullptr;
  int64_t rows = 0, outputs = 0, seqs = 0;
  bool wishes = false;  // some outputs want something else than logits
  DeviceStep step;
  const CacheMemory* cache = nullptr;
  const std::vector<std::byte*>* buffers = nullptr;
  int32_t* counters = nullptr;
  std::byte* workspace = nullptr;  // of products
  template <typename T = float>
  T* at(int32_t buffer) const {
    return reinterpret_cast<T*>((*buffers)[static_cast<size_t>(buffer)]);
  }
  int64_t rows_of(bool of_outputs) const { return of_outputs ? outputs : rows; }
};

/// What a node is of a link of a chain (matrix.h).
enum class LinkPart : uint8_t { kNone, kGlu, kPrepare, kProduct };

struct Node {
  int32_t op = 0;  // of the plan: the first it computes
  std::vector<int32_t> reads{}, writes{};
  std::function<void(const Launch&)> run{};
  LinkPart part = LinkPart::kNone;
  bool of_outputs = false;                               // a link has the rows of the outputs
  std::function<void(const Launch&, Link&)> describe{};  // writes its part of a link
};

/// Nodes that one launch computes where all of them have one row.
struct NodeChain {
  size_t first = 0;
  std::vector<size_t> ends;  // of its links; the next begins there
  bool of_outputs = false;
};

/// Where an activation lies in the arena.
struct Buffer {
  int64_t row_bytes = 0, fixed_bytes = 0;
  bool outputs = false;  // has the rows of the outputs
  int64_t offset = 0;
};

/// What choices depend on.
struct Gpu {
  int multiprocessors = 1, compute_capability = 0;  // 90: sm_90
};

struct WalkOptions {
  ProgramLimits limits;
  Gpu gpu;
  bool fuse = true;
};

struct Walk {
  std::vector<Node> nodes;
  std::vector<NodeChain> chains;    // in order
  std::vector<Buffer> buffers;      // the plan's vals first
  std::vector<int32_t> fused_into;  // of every op: the op whose node computes it (itself when alone)
  int32_t chosen = -1;              // buffer with shortlists and tokens of the outputs, where the result is logits
  int64_t arena_bytes = 0, counters = 0;
};

/// The tables of the plan that kernels read: rope frequencies and signs.
struct Tables {
  std::vector<const double*> freqs;  // one a rope table
  std::vector<const float*> signs;   // one a sign vector
};

/// Finds the chains of the nodes.
void find_chains(Walk& walk);
/// Launches the nodes of a chain as one.
void launch_chain(const Walk& walk, const NodeChain& chain, const Launch& launch);

Walk make_walk(const Plan& plan, const Weights& weights, const Tables& tables, const WalkOptions& options);

}  // namespace tern::cuda
