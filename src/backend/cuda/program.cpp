#include "backend/cuda/program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "base/checked.h"
#include "base/error.h"

namespace tern::cuda {
namespace {

constexpr int64_t kGraphRows = 32;  // a step of more rows hides its launches behind the kernels
constexpr size_t kMostGraphs = 64;  // of one program

/// Held while the GPU works on a Step with chains, whose blocks wait for each other: two at a time could each have some
/// of the multiprocessors and wait for the rest.
std::mutex& chains_turn() {
  static std::mutex one;
  return one;
}

}  // namespace

// ---- StepImage ----

StepImage::StepImage(const ProgramLimits& limits, int64_t most_pages) : limits_(limits), most_pages_(most_pages) {
  const auto rows = static_cast<size_t>(limits.rows) * 4, outputs = static_cast<size_t>(limits.outputs);
  tokens_ = outputs * sizeof(Wanted);
  positions_ = tokens_ + rows;
  seq_of_row_ = positions_ + rows;
  out_rows_ = seq_of_row_ + rows;
  seqs_ = out_rows_ + outputs * 4;
  pages_ = seqs_ + static_cast<size_t>(limits.seqs) * sizeof(SeqRows);
  host_ = PinnedMemory(pages_ + static_cast<size_t>(most_pages) * 4);
  memory_ = DeviceMemory(host_.size());
  const auto at = [&](size_t offset) { return reinterpret_cast<const int32_t*>(memory_.data() + offset); };
  device_ = {.tokens = at(tokens_),
             .positions = at(positions_),
             .seq_of_row = at(seq_of_row_),
             .seqs = reinterpret_cast<const SeqRows*>(memory_.data() + seqs_),
             .out_rows = at(out_rows_),
             .wanted = reinterpret_cast<const Wanted*>(memory_.data()),
             .pages = at(pages_)};
}

void StepImage::send(const Step& step, cudaStream_t stream) {
  CHECK(static_cast<int64_t>(step.pages.size()) <= most_pages_, "{} pages in a step for {}", step.pages.size(),
        most_pages_);
  const auto put = [&](size_t offset, const auto& values) {
    std::memcpy(host_.data() + offset, values.data(), values.size() * sizeof(values[0]));
  };
  put(0, step.wanted);
  put(tokens_, step.tokens);
  put(out_rows_, step.out_rows);
  put(seqs_, step.seqs);
  put(pages_, step.pages);
  auto* const positions = reinterpret_cast<int32_t*>(host_.data() + positions_);
  auto* const seq_of_row = reinterpret_cast<int32_t*>(host_.data() + seq_of_row_);
  for (size_t s = 0; s < step.seqs.size(); ++s) {
    const SeqRows& seq = step.seqs[s];
    for (int32_t i = 0; i < seq.n_rows; ++i) {
      positions[seq.first_row + i] = seq.position + i;
      seq_of_row[seq.first_row + i] = static_cast<int32_t>(s);
    }
  }
  check(cudaMemcpyAsync(memory_.data(), host_.data(), pages_ + step.pages.size() * 4, cudaMemcpyHostToDevice, stream),
        "sending a step");
}

// ---- CudaProgram ----

CudaProgram::CudaProgram(Machine& machine, const ProgramLimits& limits, bool fuse)
    : machine_(machine),
      plan_(limits.part ? *limits.part : *machine.plan),
      limits_(limits),
      fuse_(fuse),
      walk_(make_walk(plan_, machine.weights, machine.tables, {.limits = limits, .gpu = machine.gpu, .fuse = fuse})),
      arena_(static_cast<size_t>(walk_.arena_bytes)),
      counters_(static_cast<size_t>(walk_.counters) * 4) {
  for (const Buffer& b : walk_.buffers) buffers_.push_back(arena_.data() + b.offset);
  check(cudaMemsetAsync(counters_.data(), 0, counters_.size(), machine.stream.get()), "clearing counters");
}

CudaProgram::~CudaProgram() {
  forget_graphs();
}

void CudaProgram::forget_graphs() {
  for (const Graph& g : graphs_) {
    if (g.exec) cudaGraphExecDestroy(g.exec);
  }
  graphs_.clear();
}

/// The caches may have been reserved anew since the last Step.
void CudaProgram::bind() {
  if (generation_ == machine_.cache.generation()) return;
  generation_ = machine_.cache.generation();
  forget_graphs();
  image_ = std::make_unique<StepImage>(limits_, int64_t{limits_.seqs} * std::max(1, machine_.cache.shape().pages));
}

Launch CudaProgram::begin(const Step& step, const Results& results) {
  CHECK(step.rows() <= limits_.rows && static_cast<int32_t>(step.out_rows.size()) <= limits_.outputs &&
            static_cast<int32_t>(step.seqs.size()) <= limits_.seqs,
        "{} rows, {} outputs, {} sequences in a program for {}, {}, {}", step.rows(), step.out_rows.size(),
        step.seqs.size(), limits_.rows, limits_.outputs, limits_.seqs);
  check_wishes(step, results);
  CHECK(!results.of_wishes() || walk_.chosen >= 0, "tokens of what are no logits");
  bind();
  image_->send(step, machine_.stream.get());
  send_input(step);
  return {.stream = machine_.stream.get(),
          .rows = step.rows(),
          .outputs = static_cast<int64_t>(step.out_rows.size()),
          .seqs = static_cast<int64_t>(step.seqs.size()),
          .wishes = results.of_wishes(),
          .step = image_->device(),
          .cache = &machine_.cache,
          .buffers = &buffers_,
          .counters = reinterpret_cast<int32_t*>(counters_.data()),
          .workspace = machine_.workspace.data()};
}

/// Into the buffer of the plan's first op. Outside the graphs: it comes from another address every time.
void CudaProgram::send_input(const Step& step) {
  const Op& first = plan_.ops.front();
  if (!std::holds_alternative<InputArgs>(first.args)) return;
  const ValInfo& info = plan_.info(first.out);
  const size_t rows = info.outputs_only ? step.out_rows.size() : step.tokens.size();
  CHECK(step.input.size() == rows * static_cast<size_t>(info.cols));
  check(cudaMemcpyAsync(buffers_[static_cast<size_t>(first.out.id)], step.input.data(), step.input.size_bytes(),
                        cudaMemcpyHostToDevice, machine_.stream.get()),
        "sending the input of a segment");
}

void CudaProgram::launch_all(const Launch& launch) {
  auto chain = walk_.chains.begin();
  for (size_t n = 0; n < walk_.nodes.size();) {
    const bool begins = chain != walk_.chains.end() && chain->first == n;
    if (begins && launch.rows_of(chain->of_outputs) == 1) {
      launch_chain(walk_, *chain, launch);
      n = chain->ends.back();
    } else {
      walk_.nodes[n++].run(launch);
    }
    chain += begins;
  }
}

/// The graph of a shape, or null: it is new, or there are too many. A shape is captured when it comes a second time, so
/// that what runs once (a prompt) never pays for it.
CudaProgram::Graph* CudaProgram::graph_of(const Shape& shape) {
  if (!machine_.graphs || shape.rows > kGraphRows) return nullptr;
  const auto known = std::ranges::find(graphs_, shape, &Graph::shape);
  if (known != graphs_.end()) return &*known;
  if (graphs_.size() < kMostGraphs) graphs_.push_back({.shape = shape});
  return nullptr;
}

void CudaProgram::capture(Graph& graph, const Launch& launch) {
  check(cudaStreamBeginCapture(launch.stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
  launch_all(launch);
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(launch.stream, &captured), "capturing a graph");
  const cudaError_t status = cudaGraphInstantiate(&graph.exec, captured, 0);
  cudaGraphDestroy(captured);
  check(status, "instantiating a graph");
}

/// Starts to fetch tokens and, where some row wants one, shortlists, each to the place it has on the GPU.
void CudaProgram::fetch_chosen(const Launch& launch, const Results& results) {
  if (!launch.wishes) return;
  const auto outputs = static_cast<size_t>(launch.outputs);
  const size_t bytes = outputs * kChosenBytes, from = results.shortlists.empty() ? outputs * sizeof(Shortlist) : 0;
  if (machine_.chosen.size() < bytes) machine_.chosen = PinnedMemory(bytes);
  check(cudaMemcpyAsync(machine_.chosen.data() + from, launch.at<std::byte>(walk_.chosen) + from, bytes - from,
                        cudaMemcpyDeviceToHost, launch.stream),
        "fetching tokens");
}

/// The results: logits only of rows that want them, neighbours in one copy.
void CudaProgram::fetch(const Launch& launch, const Step& step, const Results& results) {
  const Val v = plan_.logits;
  const auto cols = static_cast<size_t>(plan_.info(v).cols);
  const auto rows = static_cast<size_t>(launch.rows_of(plan_.info(v).outputs_only));
  CHECK(results.logits.size() >= rows * cols);
  const auto whole = [&](size_t row) { return !launch.wishes || step.wanted[row].best == 0; };
  for (size_t row = 0, end = 0; row < rows; row = end + 1) {
    for (end = row; end < rows && whole(end);) ++end;
    if (row == end) continue;
    check(cudaMemcpyAsync(results.logits.data() + row * cols, launch.at(v.id) + row * cols, (end - row) * cols * 4,
                          cudaMemcpyDeviceToHost, launch.stream),
          "fetching logits");
  }
  fetch_chosen(launch, results);
  const auto start = std::chrono::steady_clock::now();
  machine_.stream.wait();
  machine_.wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::byte* const tokens = machine_.chosen.data() + rows * sizeof(Shortlist);
  for (size_t row = 0; row < rows; ++row) {
    if (whole(row)) continue;
    if (step.wanted[row].token) {
      std::memcpy(&results.tokens[row], tokens + row * sizeof(int32_t), sizeof(int32_t));
    } else {
      std::memcpy(&results.shortlists[row], machine_.chosen.data() + row * sizeof(Shortlist), sizeof(Shortlist));
    }
  }
}

void CudaProgram::run(const Step& step, const Results& results) {
  const Launch launch = begin(step, results);
  std::unique_lock<std::mutex> turn;
  if (!walk_.chains.empty() && (launch.rows == 1 || launch.outputs == 1)) turn = std::unique_lock(chains_turn());
  Graph* const graph = graph_of({launch.rows, launch.outputs, launch.seqs, launch.wishes});
  if (graph && !graph->exec) capture(*graph, launch);
  if (graph) {
    check(cudaGraphLaunch(graph->exec, launch.stream), "launching a graph");
  } else {
    launch_all(launch);
  }
  fetch(launch, step, results);
}

void CudaProgram::run_traced(const Step& step, const Results& results,
                             const std::function<void(const OpTrace&)>& sink) {
  if (fuse_) {
    if (!traced_) traced_ = std::make_unique<CudaProgram>(machine_, limits_, false);
    return traced_->run_traced(step, results, sink);
  }
  const Plan& plan = plan_;
  const Launch launch = begin(step, results);
  machine_.stream.wait();
  std::vector<float> shown;
  size_t node = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (; node < walk_.nodes.size() && walk_.nodes[node].op == static_cast<int32_t>(i); ++node)
      walk_.nodes[node].run(launch);
    machine_.stream.wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const Val out = plan.ops[i].out;
    const ValInfo& info = plan.info(out);
    const int64_t rows = launch.rows_of(info.outputs_only);
    shown.resize(static_cast<size_t>(rows * info.cols));
    check(cudaMemcpy(shown.data(), launch.at(out.id), shown.size() * 4, cudaMemcpyDeviceToHost),
          "reading an op's result");
    sink({.op = i, .data = shown.data(), .rows = rows, .cols = info.is_ids ? 0 : info.cols, .seconds = seconds});
  }
  fetch(launch, step, results);
}

}  // namespace tern::cuda
