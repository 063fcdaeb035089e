// Grouping the pairs (token, chosen expert) by expert, for the tiled product. Included by device code.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace tern::cuda {

struct GroupArgs {
  const int32_t* ids = nullptr;  // [pairs]
  int pairs = 0, experts = 0;
  int act_tile = 0;           // pairs of a tile at most
  int most_tiles = 0;         // pairs / act_tile + experts
  int32_t* counts = nullptr;  // [experts]
  int32_t* order = nullptr;   // [pairs]: grouped by expert, ascending in a group
  int4* tiles = nullptr;      // [most_tiles]: expert, first place in `order`, pairs; unused ones have no pairs
};
void launch_group(cudaStream_t stream, const GroupArgs& args);

}  // namespace tern::cuda
