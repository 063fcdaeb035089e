#include "backend/split/split_backend.h"

#include <algorithm>

#include "base/error.h"
#include "plan/segment.h"

namespace tern {
namespace {

struct Part {
  std::unique_ptr<Backend> backend;
  size_t first_op = 0;
  Plan plan;  // its segment
  /// Ops of the segment before those of the whole plan.
  size_t inputs() const { return first_op == 0 ? 0 : 1; }
};

/// A Program of every part that has one of the ops.
struct SplitProgram final : Program {
  std::unique_ptr<const Plan> last;  // of the last part, where the program ends within its segment
  std::vector<std::unique_ptr<Program>> programs;
};

class SplitBackend final : public Backend {
 public:
  explicit SplitBackend(std::vector<SplitPart> parts) {
    CHECK(!parts.empty() && parts.front().first_op == 0, "the first part begins with the plan");
    for (SplitPart& p : parts) parts_.push_back({std::move(p.backend), p.first_op, {}});
  }

  BackendInfo info() const override {
    BackendInfo all = parts_.front().backend->info();
    for (size_t i = 1; i < parts_.size(); ++i) {
      const BackendInfo one = parts_[i].backend->info();
      all.name += "+" + one.name;
      all.device += "; " + one.device;
      all.threads = std::max(all.threads, one.threads);
    }
    return all;
  }

  void load(const Plan& plan, const gguf::File& file, const LoadOptions& options) override {
    CHECK(!plan_, "load() is called once");
    plan_ = &plan;
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].plan = segment(plan, parts_[i].first_op, end_of(i));
      total += file_bytes(parts_[i].plan);
    }
    for (Part& part : parts_) {
      LoadOptions one{.activations = options.activations};
      if (options.progress)
        // A backend counts the weights that it copies, which may be fewer than it has.
        one.progress = [&, bytes = file_bytes(part.plan)](uint64_t done, uint64_t of) {
          const double share = of > 0 ? static_cast<double>(done) / static_cast<double>(of) : 1;
          options.progress(before + static_cast<uint64_t>(share * static_cast<double>(bytes)), total);
        };
      part.backend->load(part.plan, file, one);
      before += file_bytes(part.plan);
    }
  }

  void reserve(const CacheShape& shape) override {
    for (Part& part : parts_) part.backend->reserve(shape);
  }

  std::unique_ptr<Program> compile(const ProgramLimits& limits) override {
    const size_t ops = limits.part ? limits.part->ops.size() : plan_->ops.size();
    auto program = std::make_unique<SplitProgram>();
    for (size_t i = 0; i < parts_.size() && parts_[i].first_op < ops; ++i) {
      ProgramLimits one{.rows = limits.rows, .outputs = limits.outputs, .seqs = limits.seqs};
      if (ops < end_of(i)) {
        Plan cut = parts_[i].plan;
        cut.ops.resize(ops - parts_[i].first_op + parts_[i].inputs());
        cut.logits = cut.ops.back().out;
        cut.n_tokens = 0;
        program->last = std::make_unique<const Plan>(std::move(cut));
        one.part = program->last.get();
      }
      program->programs.push_back(parts_[i].backend->compile(one));
    }
    return program;
  }

  std::span<float> logits_memory(size_t floats) override { return parts_.back().backend->logits_memory(floats); }

  void run(Program& program, const Step& step, const Results& results) override {
    const auto& programs = static_cast<SplitProgram&>(program).programs;
    step_ = step;
    for (size_t i = 0; i < programs.size(); ++i) {
      const Results part = i + 1 < programs.size() ? Results{.logits = crossing(i, step)} : results;
      parts_[i].backend->run(*programs[i], step_, part);
      step_.input = part.logits;
    }
  }

  void copy_state(int32_t from, int32_t to) override {
    for (Part& part : parts_) part.backend->copy_state(from, to);
  }
  void copy_page(int32_t from, int32_t to) override {
    for (Part& part : parts_) part.backend->copy_page(from, to);
  }

  std::vector<OpReport> report() const override {
    std::vector<OpReport> all;
    for (const Part& part : parts_) {
      std::vector<OpReport> rows = part.backend->report();
      std::move(rows.begin() + static_cast<std::ptrdiff_t>(part.inputs()), rows.end(), std::back_inserter(all));
    }
    return all;
  }

  void set_trace(std::function<void(const OpTrace&)> sink) override {
    for (Part& part : parts_) {
      if (!sink) {
        part.backend->set_trace({});
        continue;
      }
      part.backend->set_trace([sink, first = part.first_op, inputs = part.inputs()](const OpTrace& trace) {
        if (trace.op < inputs) return;
        OpTrace of_plan = trace;
        of_plan.op = first + trace.op - inputs;
        sink(of_plan);
      });
    }
  }

 private:
  size_t end_of(size_t part) const { return part + 1 < parts_.size() ? parts_[part + 1].first_op : plan_->ops.size(); }
  static uint64_t file_bytes(const Plan& plan) {
    uint64_t bytes = 0;
    for (const PlanWeight& w : plan.weights) bytes += w.info.nbytes;
    return bytes;
  }
  /// Memory for what a part that is not the last hands on, where its backend likes to have it.
  std::span<float> crossing(size_t part, const Step& step) {
    const Plan& plan = parts_[part].plan;
    const ValInfo& info = plan.info(plan.logits);
    const size_t rows = info.outputs_only ? step.out_rows.size() : step.tokens.size();
    return parts_[part].backend->logits_memory(rows * static_cast<size_t>(info.cols));
  }

  std::vector<Part> parts_;
  const Plan* plan_ = nullptr;
  Step step_;  // the caller's, with the input of the part that runs
};

}  // namespace

std::unique_ptr<Backend> make_split_backend(std::vector<SplitPart> parts) {
  return std::make_unique<SplitBackend>(std::move(parts));
}

}  // namespace tern
