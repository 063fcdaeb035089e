// Pages of keys and values and slots of recurrent state in GPU memory, in the layouts of ops.h.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {

class CacheMemory {
 public:
  /// kOutOfMemory with the numbers; kInvalidArgument when a type does not fit a head (q8_0 needs a multiple of 32).
  void reserve(const Plan& plan, const CacheShape& shape);
  const CacheShape& shape() const { return shape_; }
  /// Goes up with every reserve(): addresses of before are gone.
  int64_t generation() const { return generation_; }
  const KvView& kv(int32_t layer) const { return kv_[static_cast<size_t>(layer)]; }
  const StateView& state(int32_t layer) const { return states_[static_cast<size_t>(layer)]; }
  void copy_page(cudaStream_t stream, int32_t from, int32_t to);
  void copy_state(cudaStream_t stream, int32_t from, int32_t to);

 private:
  CacheShape shape_;
  DeviceMemory memory_;
  std::vector<KvView> kv_;
  std::vector<StateView> states_;
  int64_t generation_ = 0;
};

}  // namespace tern::cuda
