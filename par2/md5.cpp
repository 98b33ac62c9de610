// SPDX-License-Identifier: Apache-2.0
#include "par2/md5.hpp"

#include <algorithm>
#include <cstring>

namespace {

using Vector = std::uint32_t;
#include "par2/md5_steps.inc"

struct Run {
  std::uint32_t (*state)[4];
  const unsigned char *bytes;
  std::size_t blocks;
};

// A chain leaves the processor so much time that two take as long as one.
template <int kChains>
void add_blocks(Run (&runs)[kChains], std::size_t blocks) {
  std::uint32_t chain[kChains][4], words[kChains][16];
  for (int i = 0; i < kChains; ++i) std::memcpy(chain[i], *runs[i].state, sizeof chain[i]);
  for (std::size_t block = 0; block < blocks; ++block) {
    for (int i = 0; i < kChains; ++i) std::memcpy(words[i], runs[i].bytes + 64 * block, sizeof words[i]);
    add_block<kChains>(chain, words, kSines);
  }
  for (Run &run : runs) {
    std::memcpy(*run.state, chain[&run - runs], sizeof *run.state);
    run.bytes += 64 * blocks;
    run.blocks -= blocks;
  }
}
void add_blocks(std::uint32_t (&state)[4], const unsigned char *bytes, std::size_t blocks) {
  Run runs[] = {{&state, bytes, blocks}};
  add_blocks(runs, blocks);
}

}  // namespace

namespace tandem::par2 {

extern const Md5Kernel md5_portable;
#ifdef TANDEM_PAR2_X86
extern const Md5Kernel md5_avx2, md5_avx512;
#endif

namespace {

std::vector<const Md5Kernel *> kernels_of_cpu() {
  std::vector<const Md5Kernel *> list;
#ifdef TANDEM_PAR2_X86
  if (__builtin_cpu_supports("avx512f")) list.push_back(&md5_avx512);
  if (__builtin_cpu_supports("avx2")) list.push_back(&md5_avx2);
#endif
  list.push_back(&md5_portable);
  return list;
}

const std::vector<const Md5Kernel *> &kernels() {
  // Never destroyed: threads may still hash when main returns.
  static const auto &list = *new const std::vector(kernels_of_cpu());
  return list;
}

const Md5Kernel *forced = nullptr;

// Runs all, the longest first. A run that ends makes room for the next one.
void add_blocks(std::vector<Run> &runs) {
  const Md5Kernel &kernel = forced != nullptr ? *forced : *kernels().front();
  constexpr std::size_t kWorthVectors = 3;  // fewer streams are faster without
  std::ranges::sort(runs, [](const Run &a, const Run &b) { return a.blocks > b.blocks; });
  while (!runs.empty() && runs.back().blocks == 0) runs.pop_back();
  const std::size_t most = kernel.vector_words * kernel.groups;
  std::vector<Run> active;
  std::size_t next = 0;
  for (;;) {
    std::erase_if(active, [](const Run &run) { return run.blocks == 0; });
    while (active.size() < most && next < runs.size()) active.push_back(runs[next++]);
    if (active.size() < kWorthVectors) break;
    std::uint32_t states[4 * kMaxMd5Streams] = {};
    const unsigned char *bytes[kMaxMd5Streams];
    std::size_t blocks = active.front().blocks;
    for (const Run &run : active) blocks = std::min(blocks, run.blocks);
    const auto word = [&](std::size_t stream, std::size_t i) -> std::uint32_t & {
      const std::size_t group = stream / kernel.vector_words;
      return states[(4 * group + i) * kernel.vector_words + stream % kernel.vector_words];
    };
    for (std::size_t stream = 0; stream < most;
         ++stream)  // streams that are left over compute on the first one's bytes
      bytes[stream] = active[stream < active.size() ? stream : 0].bytes;
    for (std::size_t stream = 0; stream < active.size(); ++stream)
      for (std::size_t i = 0; i < 4; ++i) word(stream, i) = (*active[stream].state)[i];
    kernel.run(states, bytes, blocks);
    for (std::size_t stream = 0; stream < active.size(); ++stream) {
      for (std::size_t i = 0; i < 4; ++i) (*active[stream].state)[i] = word(stream, i);
      active[stream].bytes += 64 * blocks;
      active[stream].blocks -= blocks;
    }
  }
  if (active.size() == 2) {
    Run pair[] = {active[0], active[1]};
    add_blocks(pair, std::min(pair[0].blocks, pair[1].blocks));
    active.assign(std::begin(pair), std::end(pair));
  }
  for (const Run &run : active) ::add_blocks(*run.state, run.bytes, run.blocks);
}

}  // namespace

std::span<const Md5Kernel *const> md5_kernels() { return kernels(); }
void force_md5_kernel(const Md5Kernel *kernel) { forced = kernel; }

// Fills the block that is begun, and keeps what does not fill a block at the end. Returns the whole blocks between.
std::size_t Md5::take_rest(const unsigned char *&bytes, std::size_t &count) {
  const std::size_t begun = count_ % 64;
  count_ += count;
  if (begun != 0) {
    const std::size_t filled = std::min(64 - begun, count);
    std::memcpy(rest_ + begun, bytes, filled);
    bytes += filled;
    count -= filled;
    if (begun + filled < 64) return 0;
    ::add_blocks(state_, rest_, 1);
  }
  if (count % 64 != 0) std::memcpy(rest_, bytes + count / 64 * 64, count % 64);
  return count / 64;
}

// The last one or two blocks: the rest, a bit, zeros, the length in bits.
std::size_t Md5::pad(unsigned char (&last)[128]) const {
  const std::size_t begun = count_ % 64, blocks = begun < 56 ? 1 : 2;
  std::memset(last, 0, sizeof last);
  std::memcpy(last, rest_, begun);
  last[begun] = 0x80;
  const std::uint64_t bits = 8 * count_;
  std::memcpy(last + 64 * blocks - 8, &bits, sizeof bits);
  return blocks;
}

Digest Md5::digest() const {
  Digest digest;
  std::memcpy(digest.data(), state_, sizeof state_);
  return digest;
}

void Md5::update(const void *bytes, std::size_t count) {
  auto from = static_cast<const unsigned char *>(bytes);
  const std::size_t blocks = take_rest(from, count);
  ::add_blocks(state_, from, blocks);
}

Digest Md5::finish() {
  unsigned char last[128];
  ::add_blocks(state_, last, pad(last));
  return digest();
}

Digest Md5::of(const void *bytes, std::size_t count) {
  Md5 stream;
  stream.update(bytes, count);
  return stream.finish();
}

void Md5Streams::update(std::span<const Md5Part> parts) {
  std::vector<Run> runs;
  for (const Md5Part &part : parts) {
    auto bytes = static_cast<const unsigned char *>(part.bytes);
    std::size_t count = part.count;
    const std::size_t blocks = part.stream->take_rest(bytes, count);
    runs.push_back({&part.stream->state_, bytes, blocks});
  }
  par2::add_blocks(runs);
}

std::vector<Digest> Md5Streams::finish(std::span<Md5> streams) {
  struct Last {
    unsigned char bytes[128];
  };
  std::vector<Last> last(streams.size());
  std::vector<Run> runs;
  for (std::size_t i = 0; i < streams.size(); ++i)
    runs.push_back({&streams[i].state_, last[i].bytes, streams[i].pad(last[i].bytes)});
  par2::add_blocks(runs);
  std::vector<Digest> digests;
  for (const Md5 &stream : streams) digests.push_back(stream.digest());
  return digests;
}

}  // namespace tandem::par2
