// The numbers of ops: side tables by node name, filled by Python, named by an attribute of the nodes.
//
// By name, since Grappler drops foreign attributes from nodes that it rewrites.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tensorflow/core/graph/graph.h"

namespace stepd {
namespace tf = tensorflow;

using Names = std::unordered_map<std::string, int32_t>;

constexpr char kTableAttr[] = "_stepd_order";

struct Tables {
  std::mutex mu;
  std::unordered_map<int64_t, std::shared_ptr<Names>> by_id;
  std::atomic<int64_t> executors{0};  // made by this file
  std::atomic<int64_t> delegated{0};  // left to TensorFlow
};

inline Tables& tables() {
  static Tables* made = new Tables;  // never destroyed: executors may outlive static destruction
  return *made;
}

// How many ops with numbers of a step run at once; 0: as many as there are threads. Otherwise transfers come before all else: they only
// ask, or hand on what another device may wait for. Ops that got no number have that of who waits for them first; what updates a
// variable, for which nobody waits, comes last; and what may wait for something itself (anything else with state) runs beside.
inline std::atomic<int>& lanes() {
  static std::atomic<int> made{0};
  return made;
}

// The table that the nodes of `graph` name, or null.
inline std::shared_ptr<Names> TableOf(const tf::Graph& graph) {
  for (const tf::Node* node : graph.op_nodes()) {
    const tf::AttrValue* value = node->attrs().Find(kTableAttr);
    if (value == nullptr) continue;
    std::lock_guard<std::mutex> lock(tables().mu);
    auto found = tables().by_id.find(value->i());
    if (found != tables().by_id.end()) return std::make_shared<Names>(*found->second);
  }
  return nullptr;
}

}  // namespace stepd
