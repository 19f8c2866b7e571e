// An executor for stock TensorFlow whose ready queue is sorted: among the ops of a step that are ready and worth a thread, the one
// with the lowest priority number runs first. Built on first use against the headers of the installed TensorFlow, loaded after it.
//
// A graph whose nodes are in no table (`names.h`) gets TensorFlow's own executor; so do devices other than CPUs, whose kernels this
// was not tested with.
//
// A direct session asks for it by name. A server knows no names of executors: in a process that is one, `stepd_order_take_over` has its
// graphs come here, and says how many ops with numbers a step runs at once.

#include <memory>
#include <mutex>
#include <utility>

#include "graph_order.h"
#include "names.h"
#include "redirect.h"
#include "step.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/executor_factory.h"
#include "tensorflow/core/common_runtime/simple_propagator_state.h"
#include "tensorflow/core/graph/graph.h"

#if __has_include("tensorflow/core/common_runtime/propagator_state.h")
#include "tensorflow/core/common_runtime/propagator_state.h"
#define STEPD_CONTROL_FLOW 1
#else
#define STEPD_CONTROL_FLOW 0  // graphs with v1 control flow get TensorFlow's own executor
#endif

namespace stepd {

constexpr char kExecutorType[] = "STEPD_PRIORITY";

class PriorityExecutor : public tf::Executor {
 public:
  PriorityExecutor(const tf::LocalExecutorParams& params, std::shared_ptr<Names> names) : order_(params, std::move(names)) {}
  Status Initialize(const tf::Graph& graph) { return order_.Initialize(graph); }

#if STEPD_RUN_ASYNC_INTERNAL
 private:
  void RunAsyncInternal(const Args& args, DoneCallback done) override { Begin(args, std::move(done)); }
#else
  void RunAsync(const Args& args, DoneCallback done) override { Begin(args, std::move(done)); }

 private:
#endif
  void Begin(const Args& args, DoneCallback done) {
#if STEPD_CONTROL_FLOW
    if (order_.graph.requires_control_flow_support()) {
      (new Step<tf::PropagatorState>(&order_, args, std::move(done)))->Start();
      return;
    }
#endif
    (new Step<tf::SimplePropagatorState>(&order_, args, std::move(done)))->Start();
  }

  GraphOrder order_;
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
