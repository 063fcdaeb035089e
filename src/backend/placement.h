// Buffers that live for a while placed in one piece of memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tern {

/// A buffer in use during steps [first, last]; first < 0: never.
struct LiveBuffer {
  int64_t bytes = 0;
  int32_t first = -1, last = -1;
  int64_t offset = 0;  // the answer
};

/// Largest first, each at the lowest offset that is free while it lives. Sizes that are multiples of an alignment make
/// offsets that are. Returns the bytes needed in all.
inline int64_t place_buffers(std::vector<LiveBuffer>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return buffers[i].first < 0; });
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<size_t> placed;  // by offset
  int64_t total = 0;
  for (const size_t i : order) {
    LiveBuffer& b = buffers[i];
    int64_t offset = 0;
    for (const size_t other : placed) {
      const LiveBuffer& o = buffers[other];
      if (o.last < b.first || b.last < o.first) continue;
      if (o.offset >= offset + b.bytes) break;
      offset = std::max(offset, o.offset + o.bytes);
    }
    b.offset = offset;
    total = std::max(total, offset + b.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](int64_t at, size_t p) { return at < buffers[p].offset; }),
                  i);
  }
  return total;
}

}  // namespace tern
