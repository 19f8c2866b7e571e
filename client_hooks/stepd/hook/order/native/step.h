// One run of one device's part of a step: pending counts, frames, iterations and dead tensors are TensorFlow's (PropagatorState), the
// loop is this file's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "graph_order.h"
#include "kernel_context.h"
#include "ready_queue.h"
#include "tensorflow/core/common_runtime/renamed_device.h"

namespace stepd {

inline uint64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Propagator>
class Step : public StepBase {
 public:
  using Node = typename Propagator::TaggedNode;
  using Nodes = typename Propagator::TaggedNodeSeq;
  using Ready = typename Propagator::TaggedNodeReadyQueue;
  static_assert(sizeof(Node) <= sizeof(Item::node) && std::is_trivially_copyable<Node>::value, "a node fits into an item");

  Step(GraphOrder* order, const tf::Executor::Args& args, tf::Executor::DoneCallback done)
      : order_(order),
        args_(args),
        done_(std::move(done)),
        queue_(Queue::Of(args.step_id)),
        propagator_(order->graph, args.step_id, false) {
    if (args_.user_intra_op_threadpool != nullptr) {
      user_device_ = tf::RenamedDevice::NewRenamedDevice(device()->name(), device(), false, false, args_.user_intra_op_threadpool);
    }
  }

  // What one thread has to run by itself.
  struct Inline {
    bool empty() const { return urgent.empty() && others.empty(); }
    Node Next() {
      Ready& from = urgent.empty() ? others : urgent;
      const Node next = from.front();
      from.pop_front();
      return next;
    }
    Ready urgent, others;
  };

  void Start() {
    Nodes ready;
    propagator_.ActivateRoots(order_->graph.root_nodes(), &ready);
    outstanding_.store(ready.size());
    if (ready.empty()) {
      Finish();
      return;
    }
    // The caller's thread runs nothing: it has to start the other devices' executors. Their threads may take nodes from the queue as
    // soon as they are in it, and this step may be gone with the last.
    const tf::Executor::Args::Runner runner = args_.runner;
    std::shared_ptr<Queue> queue = queue_;
    const int most = order_->most;
    auto cheap = std::make_shared<Inline>();
    int costly = 0;
    for (const Node& node : ready) {
      if (!Costly(node)) {
        Add(node, cheap.get());
      } else if (order_->Alone(node.get_node_item())) {
        RunAway(node, runner, queue);
      } else {
        Enqueue(node);
        ++costly;
      }
    }
    if (!cheap->empty()) RunAway(std::move(cheap), runner, queue);
    for (int i = 0; i < (most > 0 ? std::min(costly, most) : costly); ++i) {
      runner([queue] { Work(queue); });
    }
  }

  void Run(const Item& item) override {
    Inline todo;
    todo.others.push_back(Load(item));
    if (RunAll(&todo)) Finish();
  }

 private:

  struct Async {
    Async(const tf::OpKernelContext::Params& p, const Node& n, const Inputs& i, const Attributes& a,
          tf::NodeExecStatsInterface* s)
        : params(p), node(n), inputs(i), attributes(a), stats(s) {
      params.eigen_gpu_device = nullptr;
      params.inputs = inputs;
      params.input_alloc_attrs = attributes;
      context.reset(new tf::OpKernelContext(&params, node.get_node_item().num_outputs));
    }
    tf::OpKernelContext::Params params;
    Node node;
    Inputs inputs;
    Attributes attributes;
    tf::NodeExecStatsInterface* stats;
    std::unique_ptr<tf::OpKernelContext> context;
  };

  tf::Device* device() const { return order_->graph.params().device; }

  static Node Load(const Item& item) {
    alignas(Node) unsigned char raw[sizeof(Node)];
    std::memcpy(raw, &item.node, sizeof(Node));
    return *reinterpret_cast<Node*>(raw);
  }

  void Enqueue(const Node& node) {
    Item item;
    item.priority = order_->priority[node.get_node_item().node_id];
    item.step = this;
    std::memcpy(&item.node, &node, sizeof(Node));
    queue_->Push(item);
  }

  void Add(const Node& node, Inline* todo) const {
    (order_->Urgent(node.get_node_item()) ? todo->urgent : todo->others).push_back(node);
  }

  // Has another thread run this. The step may be gone when it returns.
  void RunAway(std::shared_ptr<Inline> todo, const tf::Executor::Args::Runner& runner, const std::shared_ptr<Queue>& queue) {
    runner([this, todo = std::move(todo), queue] {
      if (RunAll(todo.get())) Finish();
      Work(queue);
    });
  }

  void RunAway(const Node& node, const tf::Executor::Args::Runner& runner, const std::shared_ptr<Queue>& queue) {
    auto todo = std::make_shared<Inline>();
    todo->others.push_back(node);
    RunAway(std::move(todo), runner, queue);
  }

  bool Costly(const Node& node) const {
    return !args_.run_all_kernels_inline && !node.get_is_dead() && order_->WorthAThread(node.get_node_item());
  }

  void Parameters(tf::OpKernelContext::Params* params) {
    Fill(params, &args_, order_->graph.params(), user_device_ != nullptr ? user_device_.get() : device(), &slice_readers_);
    params->inc_num_deferred_ops_function = [this] {
      std::lock_guard<std::mutex> lock(mu_);
      ++deferred_;
    };
    params->dec_num_deferred_ops_function = [this] {
      bool last;
      {
        std::lock_guard<std::mutex> lock(mu_);
        last = --deferred_ == 0 && finished_;
      }
      if (last) End();
    };
  }

  // Runs nodes that are not worth a thread, and the one that is, and what becomes ready by them. True when the step has ended.
  bool RunAll(Inline* todo) {
    tf::OpKernelContext::Params params;
    Parameters(&params);
    Inputs inputs;
    Attributes attributes;
    bool ended = false;
    while (!todo->empty()) ended = RunNode(todo->Next(), &params, &inputs, &attributes, todo);
    return ended;
  }

  bool RunNode(const Node& node, tf::OpKernelContext::Params* params, Inputs* inputs, Attributes* attributes, Inline* todo) {
    const NodeItem& item = node.get_node_item();
    propagator_.MaybeMarkStarted(node);
    tf::NodeExecStatsInterface* stats = nullptr;
    if (args_.stats_collector != nullptr && !node.get_is_dead()) {
      stats = args_.stats_collector->CreateNodeExecStats(&item.kernel->def());
      if (stats != nullptr) {
        stats->SetScheduled(tf::EnvTime::NowNanos());
        stats->RecordExecutorStarted();
      }
    }
    params->track_allocations = stats != nullptr && stats->TrackAllocations();
    Entry* first_input = propagator_.GetInputTensors(node);
    EntryVector outputs(1);
    Status status;
    if (node.get_is_dead() && !item.is_transfer_node) {
      outputs.resize(item.num_outputs);
    } else if (item.is_noop) {
      if (stats != nullptr) {
        stats->RecordComputeStarted();
        stats->RecordComputeEnded();
      }
    } else if (item.const_tensor != nullptr && !params->track_allocations) {
      outputs[0].state = Entry::State::HAS_CONST_TENSOR;
      outputs[0].const_tensor = item.const_tensor;
      outputs[0].alloc_attr = item.output_attrs()[0];
      if (stats != nullptr) {
        stats->RecordComputeStarted();
        stats->RecordComputeEnded();
        stats->SetOutput(0, item.const_tensor);
      }
    } else {
      bool dead_input = false;
      status = Prepare(item, first_input, inputs, attributes, &dead_input);
      if (status.ok()) {
        params->op_kernel = item.kernel;
        params->frame_iter = propagator_.GetFrameAndIter(node);
        params->is_input_dead = dead_input;
        params->output_attr_array = item.output_attrs();
        params->forward_from_array = item.forward_from();
        params->outputs_required_array = item.outputs_required.get();
        params->inputs = *inputs;
        params->input_alloc_attrs = *attributes;
        if (item.kernel_is_async) {
          Launch(item, node, first_input, *params, *inputs, *attributes, stats);
          return false;  // it may have ended already, and the step with it
        }
        status = Compute(item, params, &outputs, stats);
      }
    }
    for (int i = 0; i < item.num_inputs; ++i) first_input[i].ClearVal();
    propagator_.MaybeMarkCompleted(node);
    Nodes ready;
    if (status.ok()) propagator_.PropagateOutputs(node, &outputs, &ready);
    outputs.clear();
    return Done(status, &ready, stats, todo);
  }

  Status Compute(const NodeItem& item, tf::OpKernelContext::Params* params, EntryVector* outputs,
                 tf::NodeExecStatsInterface* stats) {
    tf::OpKernelContext context(params, item.num_outputs);
    if (stats != nullptr) stats->RecordComputeStarted();
    static thread_local uint32_t draws = 0;  // random: of a step with the same ops each time, every sixteenth would be the same ones
    draws = draws * 1664525u + 1013904223u;
    if (order_->Measured(item, draws)) {
      const uint64_t begin = Now();
      device()->Compute(item.kernel, &context);
      order_->Learn(item, Now() - begin);
    } else {
      device()->Compute(item.kernel, &context);
    }
    if (stats != nullptr) stats->RecordComputeEnded();
    outputs->clear();
    Status status = Take(item, &context, args_.stats_collector, outputs, stats);
    if (stats != nullptr) stats->SetMemory(&context);
    return status;
  }

  void Launch(const NodeItem& item, const Node& node, Entry* first_input, const tf::OpKernelContext::Params& params,
              const Inputs& inputs, const Attributes& attributes, tf::NodeExecStatsInterface* stats) {
    auto* running = new Async(params, node, inputs, attributes, stats);
    if (stats != nullptr) stats->RecordComputeStarted();
    device()->ComputeAsync(item.kernel->AsAsync(), running->context.get(), [this, running, first_input] {
      const NodeItem& item = running->node.get_node_item();
      if (running->stats != nullptr) running->stats->RecordComputeEnded();
      EntryVector outputs;
      Status status = Take(item, running->context.get(), args_.stats_collector, &outputs, running->stats);
      if (running->stats != nullptr) running->stats->SetMemory(running->context.get());
      for (int i = 0; i < item.num_inputs; ++i) first_input[i].ClearVal();
      propagator_.MaybeMarkCompleted(running->node);
      Nodes ready;
      if (status.ok()) propagator_.PropagateOutputs(running->node, &outputs, &ready);
      outputs.clear();
      tf::NodeExecStatsInterface* stats = running->stats;
      delete running;
      if (Done(status, &ready, stats, nullptr)) Finish();
    });
  }

  // A node has run; `ready` became so by it. What is worth a thread is queued, the rest goes to `todo`, or, when the caller cannot run
  // it (null), to another thread. True when this was the last node of the step: the caller must then end it.
  bool Done(const Status& status, Nodes* ready, tf::NodeExecStatsInterface* stats, Inline* todo) {
    if (stats != nullptr) {
      stats->RecordExecutorEnded();
      stats->Done(device()->name());
    }
    if (!status.ok()) {
      Fail(status);
      return outstanding_.fetch_sub(1) == 1;
    }
    if (ready->empty()) return outstanding_.fetch_sub(1) == 1;
    // Before any of them can run: this node's share goes over to the first.
    outstanding_.fetch_add(static_cast<int>(ready->size()) - 1);
    std::shared_ptr<Inline> away;
    if (todo == nullptr) {
      away = std::make_shared<Inline>();
      todo = away.get();
    }
    // Once the last of them is queued, this step may be gone: what is used behind that is copied here.
    const int most = order_->most;
    const tf::Executor::Args::Runner* runner = &args_.runner;
    tf::Executor::Args::Runner copied;
    std::shared_ptr<Queue> queue;
    Nodes costly, alone;
    for (const Node& node : *ready) {
      if (!Costly(node)) {
        Add(node, todo);
      } else if (order_->Alone(node.get_node_item())) {
        alone.push_back(node);
      } else {
        costly.push_back(node);
      }
    }
    if (away == nullptr && todo->empty() && alone.empty() && costly.size() == 1) {
      Enqueue(costly[0]);  // the caller's thread takes the best of the queue next
      return false;
    }
    if (!costly.empty() || !alone.empty() || away != nullptr) {
      copied = *runner;
      queue = queue_;
    }
    for (const Node& node : costly) Enqueue(node);
    for (const Node& node : alone) RunAway(node, copied, queue);
    size_t threads = costly.size();
    if (most > 0 && threads > 0) {
      threads = std::min(threads, queue->Free());  // those that take items already take these too
    } else if (away == nullptr && todo->empty() && threads > 0) {
      --threads;  // the caller's thread is free for one
    }
    for (size_t i = 0; i < threads; ++i) {
      copied([queue] { Work(queue); });
    }
    if (away != nullptr && !away->empty()) RunAway(std::move(away), copied, queue);
    return false;
  }

  // The first error of a step stops what waits in its other parts.
  void Fail(const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!status_.ok()) return;
      // What failed first may have had the step cancelled: only what comes of that is derived.
      const bool cancelled = args_.cancellation_manager != nullptr && args_.cancellation_manager->IsCancelled();
      const bool derived = cancelled && (tf::errors::IsCancelled(status) || tf::errors::IsAborted(status));
      status_ = derived ? tf::StatusGroup::MakeDerived(status) : status;
    }
    Abort(args_, status);
  }

  void Finish() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      finished_ = true;
      if (deferred_ > 0) return;  // the last of them ends the step
    }
    End();
  }

  void End() {
    Status status = status_;
    if (args_.sync_on_finish && status.ok()) status = device()->Sync();
    tf::Executor::DoneCallback done = std::move(done_);
    tf::Executor::Args::Runner runner = std::move(args_.runner);
    delete this;
    runner([done = std::move(done), status] { done(status); });
  }

  GraphOrder* const order_;
  tf::Executor::Args args_;
  tf::Executor::DoneCallback done_;
  const std::shared_ptr<Queue> queue_;
  std::unique_ptr<tf::Device> user_device_;
  tf::checkpoint::TensorSliceReaderCacheWrapper slice_readers_;
  Propagator propagator_;
  std::atomic<int> outstanding_{0};
  std::mutex mu_;
  Status status_;
  int deferred_ = 0;
  bool finished_ = false;
};

}  // namespace stepd
