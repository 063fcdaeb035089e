// Errors, memory and the stream of one GPU. Plain C++: no kernels here.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tern::cuda {

/// Throws kOutOfMemory or kUnsupported naming `what` when `status` is not success.
void check(cudaError_t status, const char* what);

/// Bytes that `Free` takes back.
template <cudaError_t (*Free)(void*)>
class OwnedBytes {
 public:
  OwnedBytes() = default;
  OwnedBytes(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~OwnedBytes() {
    if (data_ != nullptr) Free(data_);
  }
  OwnedBytes(OwnedBytes&& o) noexcept : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  OwnedBytes& operator=(OwnedBytes&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Memory of the GPU, contents undefined; 256-byte aligned.
class DeviceMemory : public OwnedBytes<cudaFree> {
 public:
  DeviceMemory() = default;
  /// kOutOfMemory with what was asked for and what is free.
  explicit DeviceMemory(size_t bytes);
};

/// Page-locked memory of the host, zeroed: copies to and from the GPU run beside the host.
class PinnedMemory : public OwnedBytes<cudaFreeHost> {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(size_t bytes);
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const noexcept { return stream_; }
  /// Until everything queued is done; throws what a kernel did wrong.
  void wait() const;

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tern::cuda
