// An executor for stock TensorFlow whose ready queue is sorted: among the ops of a step that are ready and worth a thread, the one
// with the lowest priority number runs first. Built on first use against the headers of the installed TensorFlow, loaded after it.
//
// Priorities come from a side table by node name, since Grappler drops foreign attributes from nodes that it rewrites. A graph whose
// nodes are in no table gets TensorFlow's own executor; so do devices other than CPUs, whose kernels this file was not tested with.
// Pending counts, frames, iterations and dead tensors are TensorFlow's (PropagatorState); the run loop is this file's.
//
// A direct session asks for it by name. A server knows no names of executors: in a process that is one, `stepd_order_take_over` has its
// graphs come here, and says how many ops with numbers a step runs at once.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redirect.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/entry.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/executor_factory.h"
#include "tensorflow/core/common_runtime/immutable_executor_state.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/common_runtime/renamed_device.h"
#include "tensorflow/core/common_runtime/simple_propagator_state.h"
#include "tensorflow/core/common_runtime/step_stats_collector.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/util/tensor_slice_reader_cache.h"

#if __has_include("tensorflow/core/common_runtime/propagator_state.h")
#include "tensorflow/core/common_runtime/propagator_state.h"
#define STEPD_CONTROL_FLOW 1
#else
#define STEPD_CONTROL_FLOW 0  // graphs with v1 control flow get TensorFlow's own executor
#endif

namespace stepd {
namespace tf = tensorflow;

using Status = std::decay_t<decltype(std::declval<tf::OpKernelContext>().status())>;
using Names = std::unordered_map<std::string, int32_t>;
using tf::Entry;
using tf::EntryVector;
using tf::NodeItem;

constexpr char kExecutorType[] = "STEPD_PRIORITY";
constexpr char kTableAttr[] = "_stepd_order";
// Kernels that took less than this, on average, are run where they became ready: a thread's wake-up costs more.
constexpr uint32_t kWorthAThreadNanos = 3000;
constexpr int32_t kFirst = INT32_MIN;

// -- priorities ------------------------------------------------------------------------------------------------------------------

struct Tables {
  std::mutex mu;
  std::unordered_map<int64_t, std::shared_ptr<Names>> by_id;
  std::atomic<int64_t> executors{0};  // made by this file
  std::atomic<int64_t> delegated{0};  // left to TensorFlow
};

Tables& tables() {
  static Tables* made = new Tables;  // never destroyed: executors may outlive static destruction
  return *made;
}

// How many ops with numbers of a step run at once; 0: as many as there are threads. Otherwise transfers come before all else: they only
// ask, or hand on what another device may wait for. Ops that got no number have that of who waits for them first; what updates a
// variable, for which nobody waits, comes last; and what may wait for something itself (anything else with state) runs beside.
std::atomic<int>& lanes() {
  static std::atomic<int> made{0};
  return made;
}

// The table that the nodes of `graph` name, or null.
std::shared_ptr<Names> TableOf(const tf::Graph& graph) {
  for (const tf::Node* node : graph.op_nodes()) {
    const tf::AttrValue* value = node->attrs().Find(kTableAttr);
    if (value == nullptr) continue;
    std::lock_guard<std::mutex> lock(tables().mu);
    auto found = tables().by_id.find(value->i());
    if (found != tables().by_id.end()) return std::make_shared<Names>(*found->second);
  }
  return nullptr;
}

// -- one sorted queue a step, for all CPU devices: they share one pool of threads --------------------------------------------------

class StepBase;

struct Item {
  int32_t priority;
  uint64_t arrival;
  StepBase* step;
  std::aligned_storage_t<32, alignof(void*)> node;  // a TaggedNode
};

struct Later {
  bool operator()(const Item& a, const Item& b) const {
    return a.priority != b.priority ? a.priority > b.priority : a.arrival > b.arrival;
  }
};

class Queue {
 public:
  explicit Queue(int64_t step_id) : step_id_(step_id), most_(lanes().load()) {}
  ~Queue();

  void Push(Item item) {
    std::lock_guard<std::mutex> lock(mu_);
    item.arrival = arrivals_++;
    heap_.push(item);
  }

  // Whether a thread may begin to take items. When not, those that do so already take them all.
  bool Enter() {
    std::lock_guard<std::mutex> lock(mu_);
    if (heap_.empty() || (most_ > 0 && working_ >= most_)) return false;
    ++working_;
    return true;
  }

  // How many more threads may, where there is a limit.
  size_t Free() {
    std::lock_guard<std::mutex> lock(mu_);
    return static_cast<size_t>(std::max(most_ - working_, 0));
  }

  // The next item for a thread that has entered, or false: it has left then.
  bool Pop(Item* item) {
    std::lock_guard<std::mutex> lock(mu_);
    if (heap_.empty()) {
      --working_;
      return false;
    }
    *item = heap_.top();
    heap_.pop();
    return true;
  }

  // The queue that the executors of a step share.
  static std::shared_ptr<Queue> Of(int64_t step_id);

 private:
  const int64_t step_id_;
  const int most_;
  std::mutex mu_;
  int working_ = 0;
  uint64_t arrivals_ = 0;
  std::priority_queue<Item, std::vector<Item>, Later> heap_;
};

struct Queues {
  std::mutex mu;
  std::unordered_map<int64_t, std::weak_ptr<Queue>> by_step;
};

Queues& queues() {
  static Queues* made = new Queues;
  return *made;
}

std::shared_ptr<Queue> Queue::Of(int64_t step_id) {
  std::lock_guard<std::mutex> lock(queues().mu);
  std::weak_ptr<Queue>& known = queues().by_step[step_id];
  std::shared_ptr<Queue> queue = known.lock();
  if (queue == nullptr) {
    queue = std::make_shared<Queue>(step_id);
    known = queue;
  }
  return queue;
}

Queue::~Queue() {
  std::lock_guard<std::mutex> lock(queues().mu);
  auto found = queues().by_step.find(step_id_);
  if (found != queues().by_step.end() && found->second.expired()) queues().by_step.erase(found);
}

// -- executor: what is the same for all steps ---------------------------------------------------------------------------------------

struct Shared {
  Shared(const tf::LocalExecutorParams& params, std::shared_ptr<Names> table)
      : graph(params), names(std::move(table)), most(lanes().load()) {}

  Status Initialize(const tf::Graph& g) {
    Status status = graph.Initialize(g);
    if (!status.ok()) return status;
    const int nodes = graph.graph_view().num_nodes();
    priority.assign(nodes, kFirst);
    nanos.reset(new std::atomic<uint32_t>[nodes]);
    for (int i = 0; i < nodes; ++i) {
      nanos[i].store(UINT32_MAX, std::memory_order_relaxed);
      const NodeItem* item = graph.graph_view().node(i);
      if (item == nullptr || item->kernel == nullptr) continue;
      auto found = names->find(item->kernel->name());
      if (found != names->end()) priority[i] = found->second;
    }
    const std::vector<int32_t> waited_for = WaitedFor(g);
    SortReceives(waited_for);
    if (most > 0) Inherit(g, waited_for);
    return status;  // allocator attributes are set by now
  }

  // By node without a number: the first number that waits for it, directly or behind others without one. Found from the ops with
  // numbers back, the first in order before the others, each node once.
  std::vector<int32_t> WaitedFor(const tf::Graph& g) const {
    std::vector<int32_t> waited_for(priority.size(), INT32_MAX);
    std::vector<const tf::Node*> ordered;
    for (const tf::Node* node : g.op_nodes()) {
      if (priority[node->id()] != kFirst) ordered.push_back(node);
    }
    std::sort(ordered.begin(), ordered.end(),
              [this](const tf::Node* a, const tf::Node* b) { return priority[a->id()] < priority[b->id()]; });
    std::vector<bool> seen(priority.size());
    std::vector<const tf::Node*> todo;
    for (const tf::Node* from : ordered) {
      todo.push_back(from);
      while (!todo.empty()) {
        const tf::Node* node = todo.back();
        todo.pop_back();
        for (const tf::Edge* edge : node->in_edges()) {
          const tf::Node* source = edge->src();
          if (seen[source->id()] || priority[source->id()] != kFirst) continue;
          seen[source->id()] = true;
          waited_for[source->id()] = priority[from->id()];
          if (!source->IsRecv()) todo.push_back(source);
        }
      }
    }
    return waited_for;
  }

  // Receives are started in the order of who waits for them, and before what else a step begins with: they only ask.
  void SortReceives(const std::vector<int32_t>& waited_for) {
    // All that a step begins with hangs on the source, and is started in the order of its edges, which this executor's view owns.
    const auto edges = graph.graph_view().node(tf::Graph::kSourceId)->output_control_edges();
    auto* first = const_cast<tf::ControlEdgeInfo*>(edges.data());
    std::stable_sort(first, first + edges.size(), [&waited_for](const tf::ControlEdgeInfo& a, const tf::ControlEdgeInfo& b) {
      return waited_for[a.dst_id] < waited_for[b.dst_id];
    });
  }

  void Inherit(const tf::Graph& g, const std::vector<int32_t>& waited_for) {
    for (const tf::Node* node : g.op_nodes()) {
      const std::string& op = node->type_string();
      const bool updates = op.find("Apply") != std::string::npos || op.find("Assign") != std::string::npos;
      if (priority[node->id()] == kFirst && (updates || !node->op_def().is_stateful())) priority[node->id()] = waited_for[node->id()];
    }
  }

  // Run where it became ready, before all else.
  bool Urgent(const NodeItem& item) const { return most > 0 && item.is_transfer_node; }

  // Worth a thread, but of no order: run by itself.
  bool Alone(const NodeItem& item) const { return most > 0 && priority[item.node_id] == kFirst; }

  bool WorthAThread(const NodeItem& item) const {
    if (item.is_noop || item.const_tensor != nullptr || item.kernel_is_async || !item.kernel->IsExpensive()) return false;
    if (Urgent(item)) return false;
    return nanos[item.node_id].load(std::memory_order_relaxed) >= kWorthAThreadNanos;
  }

  // A running mean, of the last ten runs or so; lost updates do no harm.
  void Learn(const NodeItem& item, uint64_t took) {
    std::atomic<uint32_t>& mean = nanos[item.node_id];
    const uint32_t old = mean.load(std::memory_order_relaxed);
    const uint32_t now = static_cast<uint32_t>(std::min<uint64_t>(took, UINT32_MAX - 1));
    mean.store(old == UINT32_MAX ? std::max(now, kWorthAThreadNanos) : static_cast<uint32_t>((9ull * old + now) / 10),
               std::memory_order_relaxed);
  }

  tf::ImmutableExecutorState graph;
  std::shared_ptr<Names> names;
  const int most;  // lanes
  std::vector<int32_t> priority;  // by node id
  std::unique_ptr<std::atomic<uint32_t>[]> nanos;
};

// -- one run of one device's part of a step --------------------------------------------------------------------------------------

class StepBase {
 public:
  virtual ~StepBase() {}
  // Runs an item of this step that came out of the queue. The step may be gone when it returns.
  virtual void Run(const Item& item) = 0;
};

// Runs items, the first of the queue each time, until it is empty, where one more thread may.
void Work(const std::shared_ptr<Queue>& queue) {
  if (!queue->Enter()) return;
  Item item;
  while (queue->Pop(&item)) item.step->Run(item);
}

uint64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Propagator>
class Step : public StepBase {
 public:
  using Node = typename Propagator::TaggedNode;
  using Nodes = typename Propagator::TaggedNodeSeq;
  using Ready = typename Propagator::TaggedNodeReadyQueue;
  static_assert(sizeof(Node) <= sizeof(Item::node) && std::is_trivially_copyable<Node>::value, "a node fits into an item");

  Step(Shared* shared, const tf::Executor::Args& args, tf::Executor::DoneCallback done)
      : shared_(shared),
        args_(args),
        done_(std::move(done)),
        queue_(Queue::Of(args.step_id)),
        propagator_(shared->graph, args.step_id, false) {
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
    propagator_.ActivateRoots(shared_->graph.root_nodes(), &ready);
    outstanding_.store(ready.size());
    if (ready.empty()) {
      Finish();
      return;
    }
    // The caller's thread runs nothing: it has to start the other devices' executors. Their threads may take nodes from the queue as
    // soon as they are in it, and this step may be gone with the last.
    const tf::Executor::Args::Runner runner = args_.runner;
    std::shared_ptr<Queue> queue = queue_;
    const int most = shared_->most;
    auto cheap = std::make_shared<Inline>();
    int costly = 0;
    for (const Node& node : ready) {
      if (!Costly(node)) {
        Add(node, cheap.get());
      } else if (shared_->Alone(node.get_node_item())) {
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
  using Inputs = absl::InlinedVector<tf::TensorValue, 4>;
  using Attributes = absl::InlinedVector<tf::AllocatorAttributes, 4>;

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

  tf::Device* device() const { return shared_->graph.params().device; }

  static Node Load(const Item& item) {
    alignas(Node) unsigned char raw[sizeof(Node)];
    std::memcpy(raw, &item.node, sizeof(Node));
    return *reinterpret_cast<Node*>(raw);
  }

  void Enqueue(const Node& node) {
    Item item;
    item.priority = shared_->priority[node.get_node_item().node_id];
    item.step = this;
    std::memcpy(&item.node, &node, sizeof(Node));
    queue_->Push(item);
  }

  void Add(const Node& node, Inline* todo) const {
    (shared_->Urgent(node.get_node_item()) ? todo->urgent : todo->others).push_back(node);
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
    return !args_.run_all_kernels_inline && !node.get_is_dead() && shared_->WorthAThread(node.get_node_item());
  }

  void Fill(tf::OpKernelContext::Params* params) {
    params->step_id = args_.step_id;
    params->start_time_usecs = args_.start_time_usecs;
    params->deadline = args_.deadline;
    params->device = user_device_ != nullptr ? user_device_.get() : device();
    params->rendezvous = args_.rendezvous;
    params->collective_executor = args_.collective_executor;
    params->session_state = args_.session_state;
    params->session_handle = args_.session_handle;
    params->session_metadata = shared_->graph.params().session_metadata;
    params->tensor_store = args_.tensor_store;
    params->cancellation_manager = args_.cancellation_manager;
    params->coordination_service_agent = args_.coordination_service_agent;
    params->stack_trace = args_.stack_trace;
    params->call_frame = args_.call_frame;
    params->function_library = shared_->graph.params().function_library;
    params->resource_manager = device()->resource_manager();
    params->step_container = args_.step_container;
    params->slice_reader_cache = &slice_readers_;
    params->runner = &args_.runner;
    params->run_all_kernels_inline = args_.run_all_kernels_inline;
    params->stats_collector = args_.stats_collector;
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
    SetConfig(params, args_, 0);
  }

  // TensorFlow hands the session's configuration to kernels from some version on.
  template <class P, class A>
  static auto SetConfig(P* params, const A& args, int) -> decltype(params->session_config = args.session_config, void()) {
    params->session_config = args.session_config;
  }
  template <class P, class A>
  static void SetConfig(P*, const A&, long) {}

  // Runs nodes that are not worth a thread, and the one that is, and what becomes ready by them. True when the step has ended.
  bool RunAll(Inline* todo) {
    tf::OpKernelContext::Params params;
    Fill(&params);
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
    const uint64_t begin = Now();
    device()->Compute(item.kernel, &context);
    shared_->Learn(item, Now() - begin);
    if (stats != nullptr) stats->RecordComputeEnded();
    outputs->clear();
    Status status = Take(item, &context, outputs, stats);
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
      Status status = Take(item, running->context.get(), &outputs, running->stats);
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

  // The kernel's inputs, from the entries that its producers have filled.
  Status Prepare(const NodeItem& item, Entry* first_input, Inputs* inputs, Attributes* attributes, bool* dead) {
    inputs->resize(item.num_inputs);
    attributes->resize(item.num_inputs);
    for (int i = 0; i < item.num_inputs; ++i) {
      const bool expects_ref = item.is_any_input_ref_typed && tf::IsRefType(item.input_type(i));
      Entry* entry = first_input + i;
      (*attributes)[i] = entry->alloc_attr;
      tf::TensorValue* input = &(*inputs)[i];
      switch (entry->state) {
        case Entry::State::NO_VALUE:
          // Of a Merge all but one input have none; of a transfer it means that its input is dead.
          input->mutex_if_ref = nullptr;
          if (item.is_merge) {
            input->tensor = nullptr;
          } else {
            entry->state = Entry::State::HAS_CONST_TENSOR;
            entry->const_tensor = Nothing();
            input->tensor = const_cast<tf::Tensor*>(Nothing());
            *dead = true;
          }
          break;
        case Entry::State::HAS_VALUE:
          if (expects_ref) return NotARef(item, i);
          input->mutex_if_ref = nullptr;
          input->tensor = entry->val.get();
          break;
        case Entry::State::HAS_CONST_TENSOR:
          if (expects_ref) return NotARef(item, i);
          // Kernels do not write to inputs that they do not own alone, and the graph owns this one too.
          input->mutex_if_ref = nullptr;
          input->tensor = const_cast<tf::Tensor*>(entry->const_tensor);
          break;
        case Entry::State::HAS_REF_TENSOR: {
          tf::Tensor* variable = entry->ref_tensor.tensor;
          tf::mutex* guard = entry->ref_tensor.mu;
          {
            tf::tf_shared_lock lock(*guard);
            if (!variable->IsInitialized() && !item.is_initialization_op) {
              return tf::AttachDef(tf::errors::FailedPrecondition("Attempting to use uninitialized value ",
                                                                  item.kernel->requested_input(i)),
                                   item.kernel->def());
            }
          }
          if (expects_ref) {
            input->mutex_if_ref = guard;
            input->tensor = variable;
            break;
          }
          {
            tf::Tensor value;
            {
              tf::tf_shared_lock lock(*guard);
              value = *variable;
            }
            entry->state = Entry::State::HAS_VALUE;
            entry->val.Init(std::move(value));
          }
          input->mutex_if_ref = nullptr;
          input->tensor = entry->val.get();
          if (input->tensor->dtype() != item.input_type(i)) {
            return tf::AttachDef(
                tf::errors::InvalidArgument(i, "-th input expects type ", tf::DataTypeString(item.input_type(i)),
                                            " but automatically dereferenced input tensor has type ",
                                            tf::DataTypeString(input->tensor->dtype())),
                item.kernel->def());
          }
          break;
        }
      }
    }
    return Status();
  }

  static Status NotARef(const NodeItem& item, int i) {
    return tf::AttachDef(tf::errors::InvalidArgument(i, "-th input expects a ref type"), item.kernel->def());
  }

  static const tf::Tensor* Nothing() {
    static const tf::Tensor* made = new tf::Tensor;
    return made;
  }

  // The kernel's outputs as entries, or its error with the node that it is of.
  Status Take(const NodeItem& item, tf::OpKernelContext* context, EntryVector* outputs, tf::NodeExecStatsInterface* stats) {
    Status status = context->status();
    if (!status.ok()) {
      status = tf::AttachDef(status, item.kernel->def());
      if (status.code() == static_cast<decltype(status.code())>(8)) {  // RESOURCE_EXHAUSTED
        const std::string text(StatusText(status, 0));
        if (args_.stats_collector != nullptr) {
          status = tf::errors::CreateWithUpdatedMessage(
              status, tf::strings::StrCat(text, args_.stats_collector->ReportAllocsOnResourceExhausted(text)));
        } else {
          status = tf::errors::CreateWithUpdatedMessage(
              status, tf::strings::StrCat(text,
                                          "\nHint: If you want to see a list of allocated tensors when OOM happens, add "
                                          "report_tensor_allocations_upon_oom to RunOptions for current allocation info. This "
                                          "isn't available when running in Eager mode.\n"));
        }
      } else if (status.code() == static_cast<decltype(status.code())>(14) && !item.is_distributed_communication) {
        status = tf::errors::ReplaceErrorFromNonCommunicationOps(status, item.kernel->name());
      }
      return status;
    }
    outputs->resize(item.num_outputs);
    for (int i = 0; i < item.num_outputs; ++i) {
      const tf::TensorValue value = context->release_output(i);
      Entry* out = &(*outputs)[i];
      if (value.tensor == nullptr) {
        // A Switch fills one output; a Recv of a dead tensor none.
        const bool wanted = item.outputs_required == nullptr || item.outputs_required[i];
        if (!item.is_recv_or_switch && wanted) {
          status.Update(tf::errors::Internal("Missing ", i, "-th output from ", tf::FormatNodeDefForError(item.kernel->def())));
        }
        continue;
      }
      out->alloc_attr = context->output_alloc_attr(i);
      const tf::DataType type = value.dtype_safe();
      if (type != item.output_type(i)) {
        status.Update(tf::errors::Internal("Output ", i, " of type ", tf::DataTypeString(type), " does not match declared output type ",
                                           tf::DataTypeString(item.output_type(i)), " for node ",
                                           tf::FormatNodeDefForError(item.kernel->def())));
      } else if (value.is_ref()) {
        out->state = Entry::State::HAS_REF_TENSOR;
        out->ref_tensor.tensor = value.tensor;
        out->ref_tensor.mu = value.mutex_if_ref;
        if (stats != nullptr) {
          tf::Tensor now;
          {
            tf::tf_shared_lock lock(*value.mutex_if_ref);
            now = *value.tensor;
          }
          stats->SetOutput(i, &now);
        }
      } else {
        out->state = Entry::State::HAS_VALUE;
        out->val.Init(std::move(*value.tensor));
        if (stats != nullptr) stats->SetOutput(i, out->val.get());
      }
      if (!value.is_ref()) delete value.tensor;
    }
    return status;
  }

  template <class S>
  static auto StatusText(const S& status, int) -> decltype(std::string(status.message())) {
    return std::string(status.message());
  }
  template <class S>
  static auto StatusText(const S& status, long) -> decltype(std::string(status.error_message())) {
    return std::string(status.error_message());
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
    const int most = shared_->most;
    const tf::Executor::Args::Runner* runner = &args_.runner;
    tf::Executor::Args::Runner copied;
    std::shared_ptr<Queue> queue;
    Nodes costly, alone;
    for (const Node& node : *ready) {
      if (!Costly(node)) {
        Add(node, todo);
      } else if (shared_->Alone(node.get_node_item())) {
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
      const bool cancelled = args_.cancellation_manager != nullptr && args_.cancellation_manager->IsCancelled();
      status_ = cancelled ? tf::StatusGroup::MakeDerived(status) : status;
    }
    if (args_.rendezvous != nullptr) args_.rendezvous->StartAbort(status);
    if (args_.cancellation_manager != nullptr) {
      Cancel(args_.cancellation_manager, status, 0);
    } else if (args_.collective_executor != nullptr) {
      args_.collective_executor->StartAbort(status);
    }
  }

  template <class M>
  static auto Cancel(M* manager, const Status& status, int) -> decltype(manager->StartCancelWithStatus(status)) {
    manager->StartCancelWithStatus(status);
  }
  template <class M>
  static void Cancel(M* manager, const Status&, long) {
    manager->StartCancel();
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

  Shared* const shared_;
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

class PriorityExecutor : public tf::Executor {
 public:
  PriorityExecutor(const tf::LocalExecutorParams& params, std::shared_ptr<Names> names) : shared_(params, std::move(names)) {}
  Status Initialize(const tf::Graph& graph) { return shared_.Initialize(graph); }

#if STEPD_RUN_ASYNC_INTERNAL
 private:
  void RunAsyncInternal(const Args& args, DoneCallback done) override { Begin(args, std::move(done)); }
#else
  void RunAsync(const Args& args, DoneCallback done) override { Begin(args, std::move(done)); }

 private:
#endif
  void Begin(const Args& args, DoneCallback done) {
#if STEPD_CONTROL_FLOW
    if (shared_.graph.requires_control_flow_support()) {
      (new Step<tf::PropagatorState>(&shared_, args, std::move(done)))->Start();
      return;
    }
#endif
    (new Step<tf::SimplePropagatorState>(&shared_, args, std::move(done)))->Start();
  }

  Shared shared_;
};

bool NeedsControlFlow(const tf::Graph& graph) {
  for (const tf::Node* node : graph.op_nodes()) {
    if (tf::IsControlFlow(node)) return true;
  }
  return false;
}

class Factory : public tf::ExecutorFactory {
 public:
  Status NewExecutor(const tf::LocalExecutorParams& params, const tf::Graph& graph,
                     std::unique_ptr<tf::Executor>* made) override {
    std::shared_ptr<Names> names = TableOf(graph);
    const bool possible = params.device->device_type() == tf::DEVICE_CPU && (STEPD_CONTROL_FLOW || !NeedsControlFlow(graph));
    if (names == nullptr || !possible) {
      ++tables().delegated;
      tf::Executor* plain = nullptr;
      Status status = tf::NewLocalExecutor(params, graph, &plain);
      if (status.ok()) made->reset(plain);
      return status;
    }
    auto executor = std::make_unique<PriorityExecutor>(params, std::move(names));
    Status status = executor->Initialize(graph);
    if (status.ok()) {
      ++tables().executors;
      *made = std::move(executor);
    }
    return status;
  }
};

// In the place of NewLocalExecutor, where a server calls it.
Status NewServerExecutor(const tf::LocalExecutorParams& params, const tf::Graph& graph, tf::Executor** made) {
  std::unique_ptr<tf::Executor> executor;
  Status status = Factory().NewExecutor(params, graph, &executor);
  *made = executor.release();
  return status;
}

}  // namespace stepd

// -- what Python calls --------------------------------------------------------------------------------------------------------------

extern "C" {

// What it was built against; given by the build.
const char* stepd_order_stamp() { return STEPD_STAMP; }

const char* stepd_order_executor_type() { return stepd::kExecutorType; }

// Once a process.
void stepd_order_register() { tensorflow::ExecutorFactory::Register(stepd::kExecutorType, new stepd::Factory); }

// Has the servers of this process, made or not, ask here for executors from now on; of a step, `lanes` ops with numbers run at once.
// Returns from how many places they do.
int64_t stepd_order_take_over(int32_t lanes) {
  stepd::lanes().store(lanes);
  return stepd::Redirect(reinterpret_cast<void*>(&tensorflow::NewLocalExecutor), reinterpret_cast<void*>(&stepd::NewServerExecutor));
}

// Adds `count` nodes to a table: `names` are null-terminated, one after the other.
void stepd_order_add(int64_t table, const char* names, const int32_t* priorities, int64_t count) {
  std::lock_guard<std::mutex> lock(stepd::tables().mu);
  std::shared_ptr<stepd::Names>& known = stepd::tables().by_id[table];
  if (known == nullptr) known = std::make_shared<stepd::Names>();
  for (int64_t i = 0; i < count; ++i) {
    (*known)[names] = priorities[i];
    names += std::strlen(names) + 1;
  }
}

void stepd_order_drop(int64_t table) {
  std::lock_guard<std::mutex> lock(stepd::tables().mu);
  stepd::tables().by_id.erase(table);
}

// How many executors were made here, and how many were left to TensorFlow.
int64_t stepd_order_made() { return stepd::tables().executors.load(); }
int64_t stepd_order_delegated() { return stepd::tables().delegated.load(); }
}
