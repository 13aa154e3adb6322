// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all-gather of one's own whose data the host's proxies move: approach 3 of the guide for PyTorch.
// customized_allgather.py compiles it, by nvcc for GPUs, by the host's compiler for the simulated machine.
#include <cstdint>
#include <memory>
#include <mscclpp/algorithm.hpp>
#include <mscclpp/core.hpp>
#include <mscclpp/launch/launch.hpp>
#include <mscclpp/sim/cuda_syntax.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <pybind11/pybind11.h>

namespace py = pybind11;

// A block for each peer.
__global__ void allgather(mscclpp::DeviceHandle<mscclpp::PortChannel>* channels, int rank, size_t nbytesPerGPU) {
  if (threadIdx.x != 0) return;
  auto const channel = channels[blockIdx.x];
  // The peer may still use what its output holds, until it is here, too.
  channel.signal();
  channel.wait();
  channel.putWithSignalAndFlush(/*dstOffset=*/static_cast<size_t>(rank) * nbytesPerGPU, /*srcOffset=*/0, nbytesPerGPU);
  channel.wait();
}

// What is connected once for each communicator, which keeps it.
struct Peers {
  mscclpp::ProxyService service;
  std::vector<mscclpp::SemaphoreId> semaphores;  // by peer, without this rank

  explicit Peers(mscclpp::Communicator const& comm) : service(comm) {
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer != comm.rank()) semaphores.push_back(service.buildAndAddSemaphore(comm.connect(peer)));
    }
    service.startProxy();
  }
};

// What is made once for each pair of buffers, which are told apart by their addresses: they stay allocated for as long
// as the communicator is used. The service has room for 512 memories; a pair takes as many as there are ranks.
struct AllgatherContext {
  mscclpp::Device device;
  int rank = 0;
  std::vector<mscclpp::PortChannel> channels{};
  std::unique_ptr<mscclpp::GpuBuffer<mscclpp::DeviceHandle<mscclpp::PortChannel>>> handles{};
};

class AllgatherAlgoBuilder : public mscclpp::AlgorithmBuilder {
 public:
  std::shared_ptr<mscclpp::Algorithm> build() override {
    auto self = std::make_shared<AllgatherAlgoBuilder>();
    return std::make_shared<mscclpp::NativeAlgorithm>(
        "allgather",  // Algorithm name
        "allgather",  // Collective type
        // Initialize function
        [self](std::shared_ptr<mscclpp::Communicator> comm) { self->initialize(comm); },
        // Kernel execution function
        [self](const std::shared_ptr<void> ctx, const void* input, void* output, size_t inputSize,
               [[maybe_unused]] size_t outputSize, mscclpp::DataType dtype, [[maybe_unused]] mscclpp::ReduceOp op,
               cudaStream_t stream, [[maybe_unused]] int nBlocks, [[maybe_unused]] int nThreadsPerBlock,
               [[maybe_unused]] const std::unordered_map<std::string, uintptr_t>& extras) {
          return self->kernelFunc(ctx, input, output, inputSize, dtype, stream);
        },
        // Context initialization function
        [self](std::shared_ptr<mscclpp::Communicator> comm, const void* input, void* output, size_t inputSize,
               size_t outputSize, mscclpp::DataType dtype) {
          return self->initContext(comm, input, output, inputSize, outputSize, dtype);
        },
        // Context key generation function
        [self](const void* input, void* output, size_t inputSize, size_t outputSize, mscclpp::DataType dtype,
               bool symmetricMemory) {
          return self->generateContextKey(input, output, inputSize, outputSize, dtype, symmetricMemory);
        });
  }

 private:
  void initialize(std::shared_ptr<mscclpp::Communicator> comm) { comm->attached<Peers>(); }

  mscclpp::CommResult kernelFunc(const std::shared_ptr<void> ctx, const void* input, void* output, size_t inputSize,
                                 mscclpp::DataType, cudaStream_t stream) {
    auto const& context = *static_cast<AllgatherContext const*>(ctx.get());
    auto const queue = mscclpp::Stream::borrow(context.device, stream);
    auto* const own = static_cast<char*>(output) + static_cast<size_t>(context.rank) * inputSize;
    if (own != input) queue.copy(own, input, inputSize);
    auto const peers = static_cast<unsigned>(context.channels.size());
    if (peers == 0 || inputSize == 0) return mscclpp::CommResult::CommSuccess;
#if defined(__CUDACC__)
    allgather<<<peers, 32, 0, stream>>>(context.handles->data(), context.rank, inputSize);
    if (cudaGetLastError() != cudaSuccess) return mscclpp::CommResult::CommUnhandledCudaError;
#else
    mscclpp::launch(queue, {.blocks = peers, .threads = 32}, &allgather, context.handles->data(), context.rank,
                    inputSize);
#endif
    return mscclpp::CommResult::CommSuccess;
  }

  std::shared_ptr<void> initContext(std::shared_ptr<mscclpp::Communicator> comm, const void* input, void* output,
                                    size_t inputSize, size_t outputSize, mscclpp::DataType) {
    auto context = std::make_shared<AllgatherContext>(AllgatherContext{comm->device(), comm->rank()});
    if (comm->size() == 1 || inputSize == 0) return context;
    auto& peers = comm->attached<Peers>();
    auto const transports = comm->transports();
    auto const outputs = comm->exchangeMemory(comm->registerMemory(output, outputSize, transports));
    auto const source = peers.service.addMemory(comm->registerMemory(const_cast<void*>(input), inputSize, transports));
    std::vector<mscclpp::DeviceHandle<mscclpp::PortChannel>> handles;
    for (int peer = 0; peer < comm->size(); ++peer) {
      if (peer == comm->rank()) continue;
      auto const target = peers.service.addMemory(outputs[static_cast<size_t>(peer)]);
      context->channels.push_back(peers.service.portChannel(peers.semaphores[handles.size()], target, source));
      handles.emplace_back(context->channels.back().deviceHandle());
    }
    context->handles = std::make_unique<mscclpp::GpuBuffer<mscclpp::DeviceHandle<mscclpp::PortChannel>>>(
        context->device, handles.size());
    mscclpp::copyToDevice(*context->handles, std::span<mscclpp::DeviceHandle<mscclpp::PortChannel> const>(handles));
    return context;
  }

  mscclpp::AlgorithmCtxKey generateContextKey(const void* input, void* output, size_t inputSize, size_t outputSize,
                                              mscclpp::DataType, bool) {
    return {const_cast<void*>(input), output, inputSize, outputSize, 0};
  }
};

// A capsule that holds the algorithm until Python has taken it.
static PyObject* getCapsule(std::shared_ptr<mscclpp::Algorithm> algo) {
  auto* const held = new std::shared_ptr<mscclpp::Algorithm>(std::move(algo));
  return PyCapsule_New(held, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME, [](PyObject* capsule) {
    delete static_cast<std::shared_ptr<mscclpp::Algorithm>*>(
        PyCapsule_GetPointer(capsule, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME));
  });
}

// Expose to Python
PYBIND11_MODULE(mscclpp_native, m) {
  m.def("create_allgather_algorithm", []() {
    auto builder = std::make_shared<AllgatherAlgoBuilder>();
    auto algo = builder->build();
    return py::reinterpret_steal<py::capsule>(getCapsule(algo));
  });
}
