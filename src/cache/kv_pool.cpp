#include "cache/kv_pool.h"

namespace tern {

bool KvPool::extend(std::vector<int32_t>& table, int64_t tokens) {
  const auto wanted = static_cast<size_t>(pages_for(tokens));
  if (wanted > table.size() && wanted - table.size() > static_cast<size_t>(available())) return false;
  while (table.size() < wanted) table.push_back(take());
  return true;
}

void KvPool::shrink(std::vector<int32_t>& table, int64_t tokens) {
  const auto kept = static_cast<size_t>(pages_for(tokens));
  while (table.size() > kept) {
    release(table.back());
    table.pop_back();
  }
}

}  // namespace tern
