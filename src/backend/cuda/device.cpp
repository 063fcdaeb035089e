#include "backend/cuda/device.h"

#include <cstring>

#include "backend/cuda/launch.h"
#include "base/error.h"

namespace tern::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a failed call must not be reported again by the next one
  if (status == cudaErrorMemoryAllocation) fail(ErrorCode::kOutOfMemory, "{}: the GPU is out of memory", what);
  fail(ErrorCode::kUnsupported, "{}: CUDA says '{}' ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check_launch(cudaError_t status, const char* kernel) {
  check(status, kernel);
}

namespace {

/// Of the current device; `otherwise` when it does not say.
int attribute(cudaDeviceAttr what, int otherwise) {
  int device = 0, value = otherwise;
  return cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&value, what, device) == cudaSuccess
             ? value
             : otherwise;
}

}  // namespace

bool overlaps_launches() {
  static const bool overlaps = attribute(cudaDevAttrComputeCapabilityMajor, 0) >= 9;
  return overlaps;
}

bool multiplies_tf32() {
  static const bool does = attribute(cudaDevAttrComputeCapabilityMajor, 0) >= 8;
  return does;
}

int most_shared_memory() {
  static const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 48 << 10);
  return bytes;
}

int multiprocessors() {
  static const int count = attribute(cudaDevAttrMultiProcessorCount, 1);
  return count;
}

namespace {

std::byte* allocate_on_device(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* p = nullptr;
  if (cudaMalloc(&p, bytes) != cudaSuccess) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(ErrorCode::kOutOfMemory,
         "{:.2f} GB do not fit on the GPU: {:.2f} of {:.2f} GB are free; try a smaller context (-c) or -dev cpu",
         static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9, static_cast<double>(total) / 1e9);
  }
  return static_cast<std::byte*>(p);
}

std::byte* allocate_pinned(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* p = nullptr;
  check(cudaMallocHost(&p, bytes), "page-locked memory");
  std::memset(p, 0, bytes);
  return static_cast<std::byte*>(p);
}

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) : OwnedBytes(allocate_on_device(bytes), bytes) {}

PinnedMemory::PinnedMemory(size_t bytes) : OwnedBytes(allocate_pinned(bytes), bytes) {}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
}

Stream::~Stream() {
  cudaStreamDestroy(stream_);
}

void Stream::wait() const {
  check(cudaStreamSynchronize(stream_), "running a step");
}

}  // namespace tern::cuda
