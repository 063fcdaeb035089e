// How a plan is walked: its ops taken apart into nodes, nodes grouped into phases, activations placed in one arena.
//
// A node works on rows (each row by itself: norms, gates, rotations, rounding), once, or on items that need all rows of
// its inputs (matrix products, attention, recurrences). Consecutive nodes on rows become one phase in which a thread
// takes a row through all of them; independent nodes on items share a phase. Phases are what threads wait between: five
// a layer of a usual decoder. With one row a phase of rows is a few microseconds and is done by the thread that
// finished the phase before it, so that it costs no wait at all.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/weights.h"
#include "plan/plan.h"

namespace tern::cpu {

enum class NodeKind : uint8_t {
  kRowOp,        // the plan's op, row by row
  kAngles,       // cosines and sines of a rope table at the row's position
  kRound,        // activations of matrix products
  kKvWrite,      // keys and values into their pages
  kAttendMerge,  // parts of a long context put together
  kExpertRound,  // activations of expert products, sorted by expert
  kExpertGroup,  // once: which rows go to which expert
  kLinear,
  kAttend,
  kConv,
  kDelta,
  kExpertLinear,
};
enum class Work : uint8_t { kRows, kOnce, kItems };
Work work_of(NodeKind kind) noexcept;

struct Node {
  NodeKind kind = NodeKind::kRowOp;
  int32_t op = 0;        // of the plan; for helpers the first op that needs them
  bool outputs = false;  // rows are those of the Step's outputs
  int32_t in = -1;       // kRound, kExpertRound: what is rounded. kLinear, kExpertLinear: rounded activations
  int32_t out = -1;      // buffer written
  int32_t extra = -1;    // kAngles, kRowOp rope: angles / rope table; attention: parts; experts: index of the grouping
  const Kernel* kernel = nullptr;          // products and rounding
  std::vector<int32_t> reads{}, writes{};  // buffers and dependency tokens
};

/// Where an activation lies: row r of thread t at base + r * row_bytes (+ t * the scratch of a thread when local).
struct Buffer {
  int64_t row_bytes = 0;
  int64_t fixed_bytes = 0;  // of a buffer without rows
  bool outputs = false;
  bool local = false;  // lives within one phase of rows: one row a thread
  int64_t offset = 0;  // in the arena, or in a thread's scratch
};

/// Rows [begin, end) of the matrix of node `node`.
struct Chunk {
  int32_t node;
  int64_t begin, end;
};

struct Phase {
  Work work = Work::kRows;
  bool outputs = false;
  bool light = false;  // with one row not worth a second thread
  std::vector<int32_t> nodes{};
  std::vector<Chunk> few{}, many{};  // of the linears, for up to kFewRows rows and for more
  int32_t next_linears = -1;         // the phase with chunks that comes next, that of the next Step's behind the last
};
inline constexpr int32_t kFewRows = 8;

struct ScheduleOptions {
  int32_t rows = 0, outputs = 0;  // most of a Step
  int threads = 1;
  bool eager = false;        // one node a phase, nothing local
  int64_t attend_parts = 0;  // most parts of one Step's attention
};

struct Schedule {
  std::vector<Node> nodes;
  std::vector<Phase> phases;
  std::vector<Buffer> buffers;     // the plan's vals first
  std::vector<int32_t> groupings;  // vals of expert ids, one grouping each
  int64_t arena_bytes = 0, local_bytes = 0;
};

Schedule make_schedule(const Plan& plan, const Weights& weights, const ScheduleOptions& options);

}  // namespace tern::cpu
