// TERN_CUDA_FORMAT(TYPE): the functions of one format, instantiated. A format costs some seconds of compiling an
// architecture, so matrix_*.cu share them out.
#pragma once
#include "backend/cuda/matrix_chain.h"
#include "backend/cuda/matrix_group.h"
#include "backend/cuda/matrix_rest.h"
#include "backend/cuda/matrix_wgmma.h"

namespace tern::cuda {

template <TensorType kType>
constexpr FormatKernels make_format_kernels() {
  using L = typename FileBlock<kType>::DeviceLayout;
  FormatKernels k{.type = kType,
                  .unit = L::kUnit,
                  .unit_bytes = L::kUnitBytes,
                  .repack = launch_repack<kType>,
                  .matvec = launch_few<L>,
                  .gemm = launch_tiled<L>,
                  .floats = launch_floats<L>,
                  .lookup = launch_lookup<L>};
  if constexpr (L::kBits) k.chain = launch_chain<L>, k.chain_takes = chain_takes<L>, k.convolves = true;
  return k;
}

#define TERN_CUDA_FORMAT(TYPE)                       \
  template <>                                        \
  FormatKernels format_kernels<TensorType::TYPE>() { \
    return make_format_kernels<TensorType::TYPE>();  \
  }

}  // namespace tern::cuda
