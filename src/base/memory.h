// Large aligned memory for weights, caches and activations, in 2 MB pages where the system gives them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tern {

/// Owns zero-filled memory aligned to 2 MB (or to 64 bytes when small), advised into huge pages.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);  // kOutOfMemory with the number when the system refuses
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  template <typename T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Bytes of `[data, data+size)` that are backed by huge pages now (reads /proc/self/smaps; 0 where unknown).
size_t huge_page_bytes(const void* data, size_t size);

/// Memory this process may still take: the smaller of MemAvailable and what its cgroup leaves.
uint64_t available_memory();

}  // namespace tern
