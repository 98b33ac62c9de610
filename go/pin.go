// SPDX-License-Identifier: Apache-2.0

//go:build go1.22

package reedsolomon

import "runtime"

// A call hands C an array of the addresses of shards, as numbers. cgo allows that for memory that is pinned: the garbage collector
// neither moves nor frees it until Unpin.
type pinner = runtime.Pinner
