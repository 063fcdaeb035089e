// A copy of a model file whose metadata was edited: what a hostile or careless publisher writes.
#pragma once
#include <string>

#include "gguf/file.h"
#include "gguf/writer.h"

namespace tern::test {

/// `edit(metadata)` on a copy of `from`, written as `to`; the tensors stay. Returns `to`.
template <typename Edit>
std::string edit_metadata(const std::string& from, const std::string& to, Edit edit) {
  const gguf::File file = gguf::File::open(from);
  gguf::Metadata metadata = file.metadata();
  edit(metadata);
  gguf::Writer writer(to, metadata);
  for (const gguf::TensorInfo& t : file.tensors())
    writer.add_tensor(t.name, t.type, {t.ne.begin(), t.ne.begin() + t.n_dims});
  for (const gguf::TensorInfo& t : file.tensors()) writer.write_data(file.bytes(t));
  writer.finish();
  return to;
}

}  // namespace tern::test
