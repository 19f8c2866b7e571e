// What is the same for all steps of one graph on one device: its nodes' numbers, and what of them is worth a thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "names.h"
#include "tensorflow/core/common_runtime/immutable_executor_state.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stepd {

using Status = std::decay_t<decltype(std::declval<tf::OpKernelContext>().status())>;
using tf::NodeItem;

// Kernels that took less than this, on average, are run where they became ready: a thread's wake-up costs more.
constexpr uint32_t kWorthAThreadNanos = 3000;
constexpr int32_t kFirst = INT32_MIN;    // has no number
constexpr int32_t kSent = INT32_MIN + 1;  // before all numbers: what another device waits for, who knows how urgently

struct GraphOrder {
  GraphOrder(const tf::LocalExecutorParams& params, std::shared_ptr<Names> table)
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

  // By node without a number: the first number that waits for it, directly or behind others without one; what is sent comes before
  // all numbers, but not for an update's end being told. Found from the sends and from the ops with numbers back, the first in order
  // before the others, each node once.
  std::vector<int32_t> WaitedFor(const tf::Graph& g) const {
    std::vector<int32_t> waited_for(priority.size(), INT32_MAX);
    std::vector<std::pair<int32_t, const tf::Node*>> ordered;
    for (const tf::Node* node : g.op_nodes()) {
      const int32_t own = priority[node->id()];
      if (own != kFirst || node->IsSend()) ordered.emplace_back(own == kFirst ? kSent : own, node);
    }
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<bool> seen(priority.size());
    std::vector<const tf::Node*> todo;
    for (const auto& [number, from] : ordered) {
      todo.push_back(from);
      while (!todo.empty()) {
        const tf::Node* node = todo.back();
        todo.pop_back();
        for (const tf::Edge* edge : node->in_edges()) {
          const tf::Node* source = edge->src();
          if (seen[source->id()] || priority[source->id()] != kFirst || (number == kSent && Updates(*source))) continue;
          seen[source->id()] = true;
          waited_for[source->id()] = number;
          if (!source->IsRecv()) todo.push_back(source);
        }
      }
    }
    return waited_for;
  }

  static bool Updates(const tf::Node& node) {
    const std::string& op = node.type_string();
    return op.find("Apply") != std::string::npos || op.find("Assign") != std::string::npos;
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
      const bool sorted = Updates(*node) || !node->op_def().is_stateful();
      if (priority[node->id()] == kFirst && sorted) priority[node->id()] = waited_for[node->id()];
    }
  }

  // Run where it became ready, before all else.
  bool Urgent(const NodeItem& item) const { return most > 0 && item.is_transfer_node; }

  // Worth a thread, but of no order: run by itself.
  bool Alone(const NodeItem& item) const { return most > 0 && priority[item.node_id] == kFirst; }

  bool WorthAThread(const NodeItem& item) const {
    if (item.is_noop || item.const_tensor != nullptr || item.kernel_is_async || !item.kernel->IsExpensive()) return false;
    if (Urgent(item)) return false;
    return Mean(item) >= kWorthAThreadNanos;
  }

  uint32_t Mean(const NodeItem& item) const { return nanos[item.node_id].load(std::memory_order_relaxed); }

  // Whether the next run of a kernel is to be measured: a clock costs as much as the smallest kernels do, so of those that are not worth
  // a thread one run in sixteen is. `draw`: a random number.
  bool Measured(const NodeItem& item, uint32_t draw) const {
    return item.kernel->IsExpensive() && (draw >> 28 == 0 || Mean(item) >= kWorthAThreadNanos);
  }

  // A running mean, of the last ten runs or so that were measured; lost updates do no harm.
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

}  // namespace stepd
