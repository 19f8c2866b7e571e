// One sorted queue a step, for all CPU devices of it: they share one pool of threads. It knows no kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <queue>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "names.h"

namespace stepd {

struct Item;

class StepBase {
 public:
  virtual ~StepBase() {}
  // Runs an item of this step that came out of the queue. The step may be gone when it returns.
  virtual void Run(const Item& item) = 0;
};

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

inline Queues& queues() {
  static Queues* made = new Queues;
  return *made;
}

inline std::shared_ptr<Queue> Queue::Of(int64_t step_id) {
  std::lock_guard<std::mutex> lock(queues().mu);
  std::weak_ptr<Queue>& known = queues().by_step[step_id];
  std::shared_ptr<Queue> queue = known.lock();
  if (queue == nullptr) {
    queue = std::make_shared<Queue>(step_id);
    known = queue;
  }
  return queue;
}

inline Queue::~Queue() {
  std::lock_guard<std::mutex> lock(queues().mu);
  auto found = queues().by_step.find(step_id_);
  if (found != queues().by_step.end() && found->second.expired()) queues().by_step.erase(found);
}

// Runs items, the first of the queue each time, until it is empty, where one more thread may.
inline void Work(const std::shared_ptr<Queue>& queue) {
  if (!queue->Enter()) return;
  Item item;
  while (queue->Pop(&item)) item.step->Run(item);
}

}  // namespace stepd
