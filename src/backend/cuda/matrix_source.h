// What the activations of a product are computed from while they are rounded. Plain data, for host and device code.
#pragma once
#include <cstdint>

namespace tern::cuda {

/// Where column c of a row stands: in head h = c / dim, at offset + h * stride + c % dim. rep > 1: the heads are read
/// from tiled order, head (k, r) at k + k_heads * r, as grouped, at k * rep + r. dim 0: columns as they are.
struct Columns {
  int32_t dim = 0, stride = 0, offset = 0;  // multiples of 4
  int32_t k_heads = 1, rep = 1;
};
/// Activations that are computed while they are read: gate(g) * rms_norm(x), each part where there is one.
struct Source {
  const float* x = nullptr;
  int64_t x_stride = 0;  // floats from a row to the next
  Columns x_columns{};
  const float* norm = nullptr;  // weights of the norm over groups of `group` columns: all, or a power of two up to 128
  int32_t group = 0;
  float eps = 0;
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  Columns gate_columns{};
  int32_t gate_kind = 0;   // in the order of Gate
  float* plain = nullptr;  // if any: gets the values before rotation and rounding, [rows][cols]
};

}  // namespace tern::cuda
