#include "backend/cuda/weights.h"

#include "backend/activation_rule.h"
#include "base/checked.h"
#include "base/error.h"

namespace tern::cuda {
namespace {

constexpr size_t kAlign = 256;

MatrixShape shape_of(const gguf::TensorInfo& t) {
  return {.type = t.type, .cols = t.ne[0], .rows = t.ne[1], .experts = t.ne[2]};
}

std::vector<float> decode(const gguf::TensorInfo& info, const quant::Format& format, std::span<const std::byte> bytes) {
  std::vector<float> out(static_cast<size_t>(info.elements()));
  format.decode(bytes.data(), out.data(), info.elements(), quant::tensor_scale(info.type, bytes));
  return out;
}

}  // namespace

size_t device_bytes(const PlanWeight& w) {
  const size_t bytes = w.use == WeightUse::kVector ? static_cast<size_t>(w.info.elements()) * sizeof(float)
                                                   : matrix_bytes(shape_of(w.info));
  return round_up(bytes, kAlign);
}

void Weights::load(const Plan& plan, const gguf::File& file, const LoadOptions& load, cudaStream_t stream) {
  uint64_t bytes = 0, total = 0, done = 0;
  for (const PlanWeight& w : plan.weights) {
    if (!quant::find_format(w.info.type)) {
      fail(ErrorCode::kUnsupported, "tensor '{}' is {}, which this engine cannot decode", w.name,
           type_info(w.info.type).name);
    }
    bytes += device_bytes(w);
    total += w.info.nbytes;
  }
  arena_ = DeviceMemory(bytes);
  std::byte* next = arena_.data();
  Uploader uploader(stream);
  const auto read = [&](std::span<const std::byte> piece) {
    file.drop(piece);
    done += piece.size();
    if (load.progress) load.progress(done, total);
  };
  for (const PlanWeight& w : plan.weights) {
    const quant::Format& format = *quant::find_format(w.info.type);
    const std::span<const std::byte> tensor = file.bytes(w.info);
    Entry e;
    e.rule = activation_rule(plan, format, load.activations);
    if (w.use == WeightUse::kVector) {
      const std::vector<float> values = decode(w.info, format, tensor);
      check(cudaMemcpy(next, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), w.name.c_str());
      e.vector = reinterpret_cast<const float*>(next);
      read(tensor);
    } else {
      e.matrix = uploader.upload(shape_of(w.info), tensor, next, read);
    }
    next += device_bytes(w);
    entries_.push_back(e);
  }
  uploader.finish();
}

}  // namespace tern::cuda
