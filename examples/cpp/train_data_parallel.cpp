// Trains a digit classifier on several data-parallel ranks, in C++.
//
//   dscrun -n 4 -- ./train_data_parallel examples/data/digits.csv
//
// Every rank has the whole network and a shard of the images. The gradients are computed in the reducer's
// buckets. A full bucket is averaged while the next one is being computed. At the end, rank 0 trains alone on
// the same batches, and the losses must be equal.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dsc/dsc.hpp>
#include <memory>
#include <stdexcept>
#include <vector>

extern "C" {
#include "../c/digits.h"  // the network and the data, without communication
}

namespace {

constexpr std::size_t kEpochs = 12, kBatch = 96;
constexpr double kRate = 0.1, kWantedAccuracy = 0.95, kAllowedDifference = 1e-9;

// The structs of digits.h, which release their memory.
struct images {
  explicit images(const char* path) {
    if (!digits_load(path, &train, &test)) throw std::runtime_error("the images cannot be read");
  }
  images(const images&) = delete;
  images& operator=(const images&) = delete;
  ~images() {
    digits_free(&train);
    digits_free(&test);
  }
  image_set train, test;
};

using network_owner = std::unique_ptr<network, void (*)(network*)>;

network_owner make_network(std::size_t batch, std::uint64_t seed) {
  network_owner made(new network, [](network* net) {
    network_free(net);
    delete net;
  });
  if (!network_create(made.get(), batch, seed)) throw std::bad_alloc();
  return made;
}

// The order of a shard's images in an epoch. Equal parts of all shards form one whole batch.
std::vector<std::size_t> epoch_order(std::size_t images, std::int32_t shards, std::int32_t shard,
                                     std::size_t epoch) {
  std::vector<std::size_t> order(images);
  std::size_t count = 0;
  dsc::check(dsc_sampler_indices(images, static_cast<std::size_t>(shards), static_cast<std::size_t>(shard), 1,
                                 epoch, 1, order.data(), order.size(), &count));
  order.resize(count);
  return order;
}

// A replica of the network, whose gradients are in the buckets of a reducer.
class replica {
 public:
  replica(const dsc::comm& comm, std::size_t batch)
      : net_(make_network(batch, static_cast<std::uint64_t>(comm.rank()))), reducer_(comm, parameters()) {
    for (std::size_t i = 0; i < PARAMS; ++i) net_->grads[i] = reducer_.grad_view<double>(i).data();
  }

  double step(const image_set& images, const std::size_t* picked, std::size_t count) {
    reducer_.begin();
    const double loss = network_loss(net_.get(), &images, picked, count);
    const auto ready = [](void* self, std::size_t param) {
      static_cast<replica*>(self)->reducer_.mark_ready(param);
    };
    network_backward(net_.get(), count, ready, this);
    reducer_.finish();
    network_step(net_.get(), kRate);
    return loss;
  }

  std::size_t correct(const image_set& images, std::size_t first, std::size_t stride) const {
    return network_correct(net_.get(), &images, first, stride);
  }

 private:
  // The reducer copies rank 0's values to all ranks, so the seeds may differ.
  dsc::tensors parameters() const {
    dsc::tensors list;
    for (std::size_t i = 0; i < PARAMS; ++i)
      list.emplace_back(dsc::span<double>(net_->params[i], net_->counts[i]));
    return list;
  }

  network_owner net_;
  dsc::bucket_reducer reducer_;
};

// Trains on all ranks. Returns the loss of every step, of all ranks together.
std::vector<double> train(const dsc::comm& world, const images& data, double& accuracy) {
  const std::size_t batch = kBatch / static_cast<std::size_t>(world.size());
  const std::size_t steps = data.train.count / kBatch;
  replica model(world, batch);
  std::vector<double> losses;
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = epoch_order(data.train.count, world.size(), world.rank(), epoch);
    for (std::size_t step = 0; step < steps; ++step)
      losses.push_back(model.step(data.train, order.data() + step * batch, batch));
  }
  world.all_reduce(losses, dsc::op::avg);
  const auto first = static_cast<std::size_t>(world.rank()), stride = static_cast<std::size_t>(world.size());
  const auto correct = static_cast<double>(model.correct(data.test, first, stride));
  accuracy = world.all_reduce_value(correct, dsc::op::sum) / static_cast<double>(data.test.count);
  return losses;
}

// Trains in this process alone on the same batches. Returns the largest relative difference of a loss.
double compare_alone(const images& data, const std::vector<double>& losses) {
  const network_owner net = make_network(kBatch, 0);
  const std::size_t steps = data.train.count / kBatch;
  double worst = 0.0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto order = epoch_order(data.train.count, 1, 0, i / steps);
    const double loss = network_loss(net.get(), &data.train, order.data() + i % steps * kBatch, kBatch);
    network_backward(net.get(), kBatch, nullptr, nullptr);
    network_step(net.get(), kRate);
    worst = std::max(worst, std::abs(losses[i] - loss) / std::abs(loss));
  }
  return worst;
}

bool run(const char* path) {
  dsc::comm world = dsc::init();
  if (kBatch % static_cast<std::size_t>(world.size()) != 0)
    throw std::runtime_error("the ranks cannot share a batch equally");
  const images data(path);
  double accuracy = 0.0;
  const std::vector<double> losses = train(world, data, accuracy);
  bool good = accuracy >= kWantedAccuracy;
  if (world.rank() == 0) {
    std::printf("test accuracy %.2f%%, at least %.0f%% wanted: %s\n", accuracy * 100, kWantedAccuracy * 100,
                good ? "reached" : "MISSED");
    const double difference = compare_alone(data, losses);
    const bool equal = difference <= kAllowedDifference;
    std::printf("losses of %zu steps on %d ranks and alone differ by %.2e, allowed %.0e: %s\n", losses.size(),
                world.size(), difference, kAllowedDifference, equal ? "equal" : "DIFFERENT");
    good = good && equal;
  }
  world.finalize();
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: train_data_parallel FILE, with the images of examples/data/digits.csv\n");
    return 2;
  }
  try {
    return run(argv[1]) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "train_data_parallel: %s\n", failure.what());
  }
  return EXIT_FAILURE;
}
