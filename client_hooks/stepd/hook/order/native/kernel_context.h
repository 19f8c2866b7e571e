// What a kernel is given and what it gives back, as TensorFlow's executor has it: nothing here chooses an order.
#pragma once

#include <string>
#include <utility>

#include "graph_order.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/entry.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/step_stats_collector.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/util/tensor_slice_reader_cache.h"

namespace stepd {

using Inputs = absl::InlinedVector<tf::TensorValue, 4>;
using Attributes = absl::InlinedVector<tf::AllocatorAttributes, 4>;
using tf::Entry;
using tf::EntryVector;

// TensorFlow hands the session's configuration to kernels from some version on.
template <class P, class A>
auto SetConfig(P* params, const A& args, int) -> decltype(params->session_config = args.session_config, void()) {
  params->session_config = args.session_config;
}
template <class P, class A>
void SetConfig(P*, const A&, long) {}

// What is the same for all kernels of a step; `device` is the one that they see.
inline void Fill(tf::OpKernelContext::Params* params, tf::Executor::Args* args, const tf::LocalExecutorParams& of, tf::DeviceBase* device,
                 tf::checkpoint::TensorSliceReaderCacheWrapper* slice_readers) {
  params->step_id = args->step_id;
  params->start_time_usecs = args->start_time_usecs;
  params->deadline = args->deadline;
  params->device = device;
  params->rendezvous = args->rendezvous;
  params->collective_executor = args->collective_executor;
  params->session_state = args->session_state;
  params->session_handle = args->session_handle;
  params->session_metadata = of.session_metadata;
  params->tensor_store = args->tensor_store;
  params->cancellation_manager = args->cancellation_manager;
  params->coordination_service_agent = args->coordination_service_agent;
  params->stack_trace = args->stack_trace;
  params->call_frame = args->call_frame;
  params->function_library = of.function_library;
  params->resource_manager = of.device->resource_manager();
  params->step_container = args->step_container;
  params->slice_reader_cache = slice_readers;
  params->runner = &args->runner;
  params->run_all_kernels_inline = args->run_all_kernels_inline;
  params->stats_collector = args->stats_collector;
  SetConfig(params, *args, 0);
}

inline Status NotARef(const NodeItem& item, int i) {
  return tf::AttachDef(tf::errors::InvalidArgument(i, "-th input expects a ref type"), item.kernel->def());
}

inline const tf::Tensor* Nothing() {
  static const tf::Tensor* made = new tf::Tensor;
  return made;
}

// The kernel's inputs, from the entries that its producers have filled.
inline Status Prepare(const NodeItem& item, Entry* first_input, Inputs* inputs, Attributes* attributes, bool* dead) {
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

template <class S>
auto TextOf(const S& status, int) -> decltype(std::string(status.message())) {
  return std::string(status.message());
}
template <class S>
auto TextOf(const S& status, long) -> decltype(std::string(status.error_message())) {
  return std::string(status.error_message());
}

// The kernel's outputs as entries, or its error with the node that it is of.
inline Status Take(const NodeItem& item, tf::OpKernelContext* context, tf::StepStatsCollectorInterface* collector, EntryVector* outputs,
                   tf::NodeExecStatsInterface* stats) {
  Status status = context->status();
  if (!status.ok()) {
    status = tf::AttachDef(status, item.kernel->def());
    if (status.code() == static_cast<decltype(status.code())>(8)) {  // RESOURCE_EXHAUSTED
      const std::string text(TextOf(status, 0));
      if (collector != nullptr) {
        status = tf::errors::CreateWithUpdatedMessage(
            status, tf::strings::StrCat(text, collector->ReportAllocsOnResourceExhausted(text)));
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

template <class M>
auto Cancel(M* manager, const Status& status, int) -> decltype(manager->StartCancelWithStatus(status)) {
  manager->StartCancelWithStatus(status);
}
template <class M>
void Cancel(M* manager, const Status&, long) {
  manager->StartCancel();
}

// Stops what waits in the other parts of a step.
inline void Abort(const tf::Executor::Args& args, const Status& status) {
  if (args.rendezvous != nullptr) args.rendezvous->StartAbort(status);
  if (args.cancellation_manager != nullptr) {
    Cancel(args.cancellation_manager, status, 0);
  } else if (args.collective_executor != nullptr) {
    args.collective_executor->StartAbort(status);
  }
}

}  // namespace stepd
