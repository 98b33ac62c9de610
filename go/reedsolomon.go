// SPDX-License-Identifier: Apache-2.0

// Package reedsolomon is Reed-Solomon erasure coding by the C library Tandem, with the interface, the errors and the parity bytes
// of github.com/klauspost/reedsolomon.
//
// An Encoder may be used by several goroutines at once. Shards are not copied. Calls that move 256 KiB or more run on all cores.
package reedsolomon

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#cgo LDFLAGS: -ltandem
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

// The message belongs to the thread, and Go may continue on another one: it is copied in the call that failed.
typedef struct { int status, consistent; char *message; } outcome;
static outcome finish(tandem_status status) {
  outcome done = {status, 0, status == TANDEM_OK ? NULL : strdup(tandem_last_error_message())};
  return done;
}

// Addresses are numbers here: cgo lets no array of pointers into Go's memory pass. For an update, shards 0 and 1 are the old and the
// new bytes of data shard `index`; to accumulate, shard 0 is that data shard.
static outcome run(int operation, tandem_context *context, tandem_codec *codec, const uintptr_t *addresses,
                   size_t first_parity, const uint8_t *present, uint32_t index, size_t bytes) {
  const void *const *data = (const void *const *)addresses;
  void *const *shards = (void *const *)addresses, *const *parity = shards + first_parity;
  tandem_verify_result result = {.struct_bytes = sizeof result};
  switch (operation) {
    case TANDEM_OPERATION_ENCODE: return finish(tandem_encode(context, codec, data, parity, bytes));
    case TANDEM_OPERATION_DECODE: return finish(tandem_decode(context, codec, shards, present, bytes));
    case TANDEM_OPERATION_UPDATE: return finish(tandem_update(context, codec, index, data[0], data[1], parity, bytes));
    case TANDEM_OPERATION_ACCUMULATE: return finish(tandem_accumulate(context, codec, index, data[0], parity, bytes, 0));
  }
  outcome done = finish(tandem_verify(context, codec, data, bytes, &result));
  done.consistent = result.consistent;
  return done;
}
*/
import "C"

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"unsafe"
)

// Encoder is the interface of klauspost/reedsolomon.
type Encoder interface {
	// Encode computes the parity shards, which come after the data shards. All have the same length.
	Encode(shards [][]byte) error
	// EncodeIdx adds one data shard to parity, which begins as zeros.
	EncodeIdx(dataShard []byte, idx int, parity [][]byte) error
	// Verify tells whether parity matches data.
	Verify(shards [][]byte) (bool, error)
	// Reconstruct rebuilds the shards that are nil or empty, in their own memory if its capacity suffices.
	Reconstruct(shards [][]byte) error
	// ReconstructData leaves missing parity shards as they are.
	ReconstructData(shards [][]byte) error
	// ReconstructSome rebuilds the missing shards for which required is true: an entry for each shard, or each data shard.
	ReconstructSome(shards [][]byte, required []bool) error
	// Update brings parity up to date. shards has the old data, newDatashards the new, and nil for what did not change.
	Update(shards [][]byte, newDatashards [][]byte) error
	// Split cuts data into shards, in its own memory and capacity as far as they go. The parity shards are not computed.
	Split(data []byte) ([][]byte, error)
	// Join writes the first outSize bytes of the data shards.
	Join(dst io.Writer, shards [][]byte, outSize int) error
}

// The errors of klauspost/reedsolomon, which mean the same.
var (
	ErrInvShardNum         = errors.New("a code needs a data shard, and no negative number of parity shards")
	ErrMaxShardNum         = errors.New("more shards than the code can have")
	ErrTooFewShards        = errors.New("too few shards")
	ErrInvalidInput        = errors.New("a list has the wrong length, or lacks a shard")
	ErrShardNoData         = errors.New("no shard has data")
	ErrShardSize           = errors.New("the shards have different lengths")
	ErrInvalidShardSize    = errors.New("the length of the shards is not a multiple of 64")
	ErrShortData           = errors.New("there is less data than asked for")
	ErrReconstructRequired = errors.New("a data shard is missing: reconstruct it first")
)

// Error is what the library refused: a status of tandem.h, and a sentence with the numbers.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return e.Message }

func failure(done C.outcome) error {
	if done.status == C.TANDEM_OK {
		return nil
	}
	defer C.free(unsafe.Pointer(done.message))
	return &Error{int(done.status), C.GoString(done.message)}
}

type options struct {
	matrix  C.int32_t
	custom  [][]byte
	leopard bool
	threads int
}

// Option of New, with the name that it has in klauspost/reedsolomon.
type Option func(*options)

func matrix(matrix C.int32_t) Option { return func(o *options) { o.matrix = matrix } }
func ignored(*options)               {}

// Matrices. Some losses cannot be rebuilt with that of PAR 1. Leopard is the code over GF(2^16).
func WithCauchyMatrix() Option              { return matrix(C.TANDEM_MATRIX_ISAL_CAUCHY) }
func WithJerasureMatrix() Option            { return matrix(C.TANDEM_MATRIX_JERASURE_VANDERMONDE) }
func WithPAR1Matrix() Option                { return matrix(C.TANDEM_MATRIX_PAR1) }
func WithCustomMatrix(rows [][]byte) Option { return func(o *options) { o.custom = rows } }
func WithLeopardGF16(enabled bool) Option   { return func(o *options) { o.leopard = enabled } }

// WithMaxGoroutines limits the threads of a call. With 1, it stays on its own thread, unless a GPU joins in (after 4 GiB).
func WithMaxGoroutines(n int) Option { return func(o *options) { o.threads = n } }

// These have no effect: Tandem chooses by itself.
func WithAutoGoroutines(shardSize int) Option { return ignored }
func WithInversionCache(enabled bool) Option  { return ignored }

// Contexts by their number of threads, for the life of the process. 0 is the one of libtandem itself.
var contexts = map[int]*C.tandem_context{0: nil}
var contextsMutex sync.Mutex
var none = make([]byte, 1) // for calls without flags

func contextOf(threads int) (*C.tandem_context, error) {
	if threads < 0 || threads >= runtime.NumCPU() {
		threads = 0
	}
	contextsMutex.Lock()
	defer contextsMutex.Unlock()
	context, known := contexts[threads]
	if !known {
		options := C.tandem_context_options{struct_bytes: C.sizeof_tandem_context_options, thread_count: C.uint32_t(threads)}
		if err := failure(C.finish(C.tandem_context_create(&options, &context))); err != nil {
			return nil, err
		}
		contexts[threads] = context
	}
	return context, nil
}

type reedSolomon struct {
	k, m, multiple int
	codec          *C.tandem_codec
	context        *C.tandem_context
}

// New makes a code with the matrix of Backblaze and MinIO; or of Leopard over GF(2^16), for more than 256 shards.
func New(dataShards, parityShards int, opts ...Option) (Encoder, error) {
	o := options{matrix: C.TANDEM_MATRIX_BACKBLAZE}
	for _, option := range opts {
		option(&o)
	}
	r := &reedSolomon{k: dataShards, m: parityShards, multiple: 1}
	if r.k <= 0 || r.m < 0 {
		return nil, ErrInvShardNum
	}
	if r.k > 65536 || r.m > 65536-r.k {
		return nil, ErrMaxShardNum
	}
	var coefficients []byte
	switch {
	case r.k+r.m > 256 || o.leopard && r.m > 0:
		o.matrix, r.multiple = C.TANDEM_MATRIX_LEOPARD16, 64
	case r.m == 0:
		o.matrix = C.TANDEM_MATRIX_BACKBLAZE
	case o.custom != nil:
		for i := 0; i < r.m; i++ {
			if i >= len(o.custom) || len(o.custom[i]) < r.k {
				return nil, errors.New("the custom matrix needs m rows of k coefficients")
			}
			coefficients = append(coefficients, o.custom[i][:r.k]...)
		}
	}
	codec := C.tandem_codec_options{struct_bytes: C.sizeof_tandem_codec_options, k: C.uint32_t(r.k), m: C.uint32_t(r.m),
		matrix: o.matrix, allow_non_mds: 1}
	if coefficients != nil {
		codec.matrix, codec.coefficients = C.TANDEM_MATRIX_CUSTOM, C.CBytes(coefficients)
		defer C.free(codec.coefficients)
	}
	runtime.LockOSThread() // it has the message of a failure
	defer runtime.UnlockOSThread()
	var err error
	if r.context, err = contextOf(o.threads); err == nil {
		err = failure(C.finish(C.tandem_codec_create(&codec, &r.codec)))
	}
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(r, func(r *reedSolomon) { C.tandem_codec_destroy(r.codec) })
	return r, nil
}

// sizeOf is the length of `count` shards. With missingOK, some may be empty.
func (r *reedSolomon) sizeOf(shards [][]byte, count int, missingOK bool) (int, error) {
	if len(shards) != count {
		return 0, ErrTooFewShards
	}
	size := 0
	for i := 0; i < len(shards) && size == 0; i++ {
		size = len(shards[i])
	}
	if size == 0 {
		return 0, ErrShardNoData
	}
	for _, shard := range shards {
		if len(shard) != size && (len(shard) != 0 || !missingOK) {
			return 0, ErrShardSize
		}
	}
	if size%r.multiple != 0 {
		return 0, ErrInvalidShardSize
	}
	return size, nil
}

// run calls the library, with 0 for an empty shard. The last m shards are parity.
func (r *reedSolomon) run(operation C.int, shards [][]byte, present []byte, index, size int) (bool, error) {
	var memory pinner
	defer memory.Unpin()
	addresses := make([]C.uintptr_t, len(shards))
	for i, shard := range shards {
		if len(shard) != 0 {
			memory.Pin(&shard[0])
			addresses[i] = C.uintptr_t(uintptr(unsafe.Pointer(&shard[0])))
		}
	}
	done := C.run(operation, r.context, r.codec, &addresses[0], C.size_t(len(shards)-r.m), (*C.uint8_t)(&present[0]), C.uint32_t(index), C.size_t(size))
	runtime.KeepAlive(r)
	return done.consistent != 0, failure(done)
}

func (r *reedSolomon) Encode(shards [][]byte) error {
	size, err := r.sizeOf(shards, r.k+r.m, false)
	if err == nil {
		_, err = r.run(C.TANDEM_OPERATION_ENCODE, shards, none, 0, size)
	}
	return err
}

func (r *reedSolomon) EncodeIdx(dataShard []byte, idx int, parity [][]byte) error {
	if idx < 0 || idx >= r.k {
		return ErrInvShardNum
	}
	shards := append([][]byte{dataShard}, parity...)
	size, err := r.sizeOf(shards, 1+r.m, false)
	if err == nil {
		_, err = r.run(C.TANDEM_OPERATION_ACCUMULATE, shards, none, idx, size)
	}
	return err
}

func (r *reedSolomon) Verify(shards [][]byte) (bool, error) {
	size, err := r.sizeOf(shards, r.k+r.m, false)
	if err != nil {
		return false, err
	}
	return r.run(C.TANDEM_OPERATION_VERIFY, shards, none, 0, size)
}

func (r *reedSolomon) Update(shards [][]byte, newDatashards [][]byte) error {
	if len(newDatashards) != r.k {
		return ErrTooFewShards
	}
	size, err := r.sizeOf(append(append([][]byte(nil), shards...), newDatashards...), r.k+r.m+r.k, true)
	if err != nil {
		return err
	}
	for i, shard := range shards {
		if len(shard) == 0 && (i >= r.k || len(newDatashards[i]) != 0) {
			return ErrInvalidInput
		}
	}
	for i, changed := range newDatashards {
		if len(changed) != 0 && err == nil {
			_, err = r.run(C.TANDEM_OPERATION_UPDATE, append([][]byte{shards[i], changed}, shards[r.k:]...), none, i, size)
		}
	}
	return err
}

func (r *reedSolomon) Reconstruct(shards [][]byte) error     { return r.rebuild(shards, r.k+r.m, nil) }
func (r *reedSolomon) ReconstructData(shards [][]byte) error { return r.rebuild(shards, r.k, nil) }

func (r *reedSolomon) ReconstructSome(shards [][]byte, required []bool) error {
	if len(required) != r.k && len(required) != r.k+r.m {
		return ErrInvalidInput
	}
	return r.rebuild(shards, len(required), required)
}

// rebuild computes the missing ones of the first `count` shards; if there is a list, of those that it marks.
func (r *reedSolomon) rebuild(shards [][]byte, count int, required []bool) error {
	size, err := r.sizeOf(shards, r.k+r.m, true)
	if err != nil {
		return err
	}
	present, presentCount := make([]byte, len(shards)), 0
	rebuilt := append([][]byte(nil), shards...)
	for i, shard := range shards {
		if len(shard) != 0 {
			present[i] = 1
			presentCount++
		} else if i < count && (required == nil || required[i]) {
			if cap(shard) < size {
				shard = make([]byte, size)
			}
			rebuilt[i] = shard[:size]
		}
	}
	if _, err = r.run(C.TANDEM_OPERATION_DECODE, rebuilt, present, 0, size); err == nil {
		copy(shards, rebuilt)
	} else if presentCount < r.k {
		err = ErrTooFewShards
	}
	return err
}

func (r *reedSolomon) Split(data []byte) ([][]byte, error) {
	length := len(data)
	if length == 0 {
		return nil, ErrShortData
	}
	each := (length + r.k*r.multiple - 1) / (r.k * r.multiple) * r.multiple
	if data = data[:cap(data)]; len(data) > each*(r.k+r.m) {
		data = data[:each*(r.k+r.m)]
	}
	for i := length; i < len(data); i++ {
		data[i] = 0
	}
	shards := make([][]byte, 0, r.k+r.m)
	for ; len(data) >= each; data = data[each:] {
		shards = append(shards, data[:each:each])
	}
	added := make([]byte, each*(cap(shards)-len(shards)))
	for copy(added, data); len(added) > 0; added = added[each:] {
		shards = append(shards, added[:each:each])
	}
	return shards, nil
}

func (r *reedSolomon) Join(dst io.Writer, shards [][]byte, outSize int) error {
	if len(shards) < r.k {
		return ErrTooFewShards
	}
	left := outSize
	for i := 0; i < r.k && left > 0; i++ {
		if shards[i] == nil {
			return ErrReconstructRequired
		}
		left -= len(shards[i])
	}
	if left > 0 {
		return ErrShortData
	}
	for _, shard := range shards {
		if len(shard) > outSize {
			shard = shard[:outSize]
		}
		outSize -= len(shard)
		if _, err := dst.Write(shard); err != nil || outSize == 0 {
			return err
		}
	}
	return nil
}
