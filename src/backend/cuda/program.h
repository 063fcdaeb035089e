// A walk bound to memory: runs Steps, the small ones as captured graphs.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/walk.h"

namespace tern::cuda {

/// What every program of a backend shares.
struct Machine {
  const Plan* plan = nullptr;
  Stream stream;
  Gpu gpu;
  bool graphs = true;
  Weights weights;
  Tables tables;
  DeviceMemory table_memory, workspace;  // workspace: of products
  CacheMemory cache;
  PinnedMemory logits;      // what callers were given to have logits in
  PinnedMemory chosen;      // shortlists and tokens of a Step, on their way to the caller
  double wait_seconds = 0;  // of the last Step: the host had nothing to do
};

/// A Step in page-locked memory and its copy on the GPU: one transfer a Step, always to the same address.
class StepImage {
 public:
  StepImage(const ProgramLimits& limits, int64_t most_pages);
  /// Starts the transfer. The previous one is complete (a Step's results have arrived before the next begins).
  void send(const Step& step, cudaStream_t stream);
  const DeviceStep& device() const { return device_; }

 private:
  ProgramLimits limits_;
  int64_t most_pages_;
  size_t tokens_, positions_, seq_of_row_, out_rows_, seqs_, pages_;  // offsets; what is wanted is in front
  PinnedMemory host_;
  DeviceMemory memory_;
  DeviceStep device_;
};

class CudaProgram final : public Program {
 public:
  CudaProgram(Machine& machine, const ProgramLimits& limits, bool fuse = true);
  ~CudaProgram() override;

  void run(const Step& step, const Results& results);
  /// Op by op on an unfused walk of its own; the sink sees each op right after it ran.
  void run_traced(const Step& step, const Results& results, const std::function<void(const OpTrace&)>& sink);

 private:
  /// Steps of one shape: the same launches with the same arguments.
  struct Shape {
    int64_t rows, outputs, seqs;
    bool wishes;
    bool operator==(const Shape&) const = default;
  };
  struct Graph {
    Shape shape;
    cudaGraphExec_t exec = nullptr;  // null until the shape comes a second time
  };
  void bind();
  void forget_graphs();
  Launch begin(const Step& step, const Results& results);
  void send_input(const Step& step);
  void launch_all(const Launch& launch);
  Graph* graph_of(const Shape& shape);
  void capture(Graph& graph, const Launch& launch);
  void fetch(const Launch& launch, const Step& step, const Results& results);
  void fetch_chosen(const Launch& launch, const Results& results);

  Machine& machine_;
  const Plan& plan_;  // the machine's, or a part of it
  const ProgramLimits limits_;
  const bool fuse_;
  Walk walk_;
  DeviceMemory arena_, counters_;  // counters: parts of attention
  std::vector<std::byte*> buffers_;
  std::unique_ptr<StepImage> image_;
  int64_t generation_ = -1;  // of the cache that graphs and the image were made for
  std::vector<Graph> graphs_;
  std::unique_ptr<CudaProgram> traced_;
};

}  // namespace tern::cuda
