// SPDX-License-Identifier: Apache-2.0
// The plans behind the plain functions. Each thread keeps the plans of its recent shapes. So a small call solves
// nothing, builds no table, takes no lock and allocates nothing.
#pragma once

#include <memory>

#include "api/objects.hpp"

namespace tandem::api {

// The calling thread's plan for this shape; made if there is none. Valid at least until this thread's next call. Throws
// Error.
const core::Plan &cached_plan(const tandem_context &context, const tandem_codec &codec, const core::Shape &shape);

// The same as an owner.
std::shared_ptr<const core::Plan> shared_plan(const tandem_context &context, const tandem_codec &codec,
                                              const core::Shape &shape);

// The plan that encodes every parity shard: the shape of most calls, found without building a Shape.
const core::Plan &cached_encode_plan(const tandem_context &context, const tandem_codec &codec);

core::ShardSet all_parity(const core::Codec &codec);

}  // namespace tandem::api
