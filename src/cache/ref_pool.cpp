#include "cache/ref_pool.h"

#include "base/error.h"

namespace tern {

RefPool::RefPool(int32_t units) {
  CHECK(units >= 0, "{} units", units);
  owners_.resize(static_cast<size_t>(units), 0);
  free_.reserve(owners_.size());
  for (int32_t id = units - 1; id >= 0; --id) free_.push_back(id);
}

int32_t RefPool::take() {
  if (free_.empty()) return -1;
  const int32_t id = free_.back();
  free_.pop_back();
  owners_[static_cast<size_t>(id)] = 1;
  return id;
}

void RefPool::share(int32_t id) {
  CHECK(owners(id) > 0, "unit {} is free", id);
  ++owners_[static_cast<size_t>(id)];
}

void RefPool::release(int32_t id) {
  CHECK(owners(id) > 0, "unit {} is free", id);
  if (--owners_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

int32_t RefPool::owners(int32_t id) const {
  CHECK(id >= 0 && id < size(), "unit {} of {}", id, size());
  return owners_[static_cast<size_t>(id)];
}

}  // namespace tern
