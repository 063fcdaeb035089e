// Accounting of equal units that several owners may share: reference counts and a free list over ids 0..n-1. What a
// unit is made of lies with the backend; nothing here touches memory of a device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tern {

class RefPool {
 public:
  explicit RefPool(int32_t units);

  /// A free unit with one owner, or -1 when none is left. Lowest ids first, so that a half-used pool stays compact.
  int32_t take();
  /// One owner more. `id` must be in use.
  void share(int32_t id);
  /// One owner less; a unit without owners is free again. `id` must be in use.
  void release(int32_t id);
  /// Owners of `id`; 0 when it is free.
  int32_t owners(int32_t id) const;

  int32_t size() const noexcept { return static_cast<int32_t>(owners_.size()); }
  int32_t available() const noexcept { return static_cast<int32_t>(free_.size()); }

 private:
  std::vector<int32_t> owners_;
  std::vector<int32_t> free_;  // a stack: the next one to take is at the back
};

}  // namespace tern
