// SPDX-License-Identifier: Apache-2.0

// klauspost/reedsolomon behind ISA-L's functions, as a peer of `tandem-bench run --peer`. One goroutine. Its "tables" are the
// coefficients. In a folder with a copy of this file:
//
//	go mod init peer && go get github.com/klauspost/reedsolomon
//	go build -buildmode=c-shared -o libklauspost.so
package main

// #include <stdlib.h>
import "C"

import (
	"runtime/debug"
	"unsafe"

	"github.com/klauspost/reedsolomon"
)

// A coder for each table, by its address and the coefficients that it had.
type coder struct {
	coefficients string
	encoder      reedsolomon.Encoder
	shards       [][]byte
}

var coders = map[*C.uchar]*coder{}

// Multiplication in the field of polynomial 0x11d.
func multiply(a, b byte) byte {
	var product byte
	for ; b != 0; b >>= 1 {
		if b&1 != 0 {
			product ^= a
		}
		carry := a >> 7
		a = a<<1 ^ carry*0x1d
	}
	return product
}

func coderOf(k, rows int, tables *C.uchar) *coder {
	coefficients := unsafe.Slice((*byte)(unsafe.Pointer(tables)), k*rows)
	found := coders[tables]
	if found != nil && found.coefficients == string(coefficients) && len(found.shards) == k+rows {
		return found
	}
	matrix := make([][]byte, rows)
	for r := range matrix {
		matrix[r] = append([]byte{}, coefficients[r*k:(r+1)*k]...)
	}
	encoder, err := reedsolomon.New(k, rows, reedsolomon.WithCustomMatrix(matrix), reedsolomon.WithMaxGoroutines(1))
	if err != nil {
		panic(err)
	}
	found = &coder{string(coefficients), encoder, make([][]byte, k+rows)}
	coders[tables] = found
	return found
}

//export ec_init_tables
func ec_init_tables(k, rows C.int, coefficients, tables *C.uchar) {
	count := int(k * rows)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(tables)), count), unsafe.Slice((*byte)(unsafe.Pointer(coefficients)), count))
}

//export ec_encode_data
func ec_encode_data(bytes, k, rows C.int, tables *C.uchar, inputs, outputs **C.uchar) {
	coder := coderOf(int(k), int(rows), tables)
	for i, shard := range unsafe.Slice(inputs, k) {
		coder.shards[i] = unsafe.Slice((*byte)(unsafe.Pointer(shard)), bytes)
	}
	for i, shard := range unsafe.Slice(outputs, rows) {
		coder.shards[int(k)+i] = unsafe.Slice((*byte)(unsafe.Pointer(shard)), bytes)
	}
	if err := coder.encoder.Encode(coder.shards); err != nil {
		panic(err)
	}
}

//export ec_encode_data_update
func ec_encode_data_update(bytes, k, rows, index C.int, tables, input *C.uchar, outputs **C.uchar) {
	coder := coderOf(int(k), int(rows), tables)
	parity := make([][]byte, rows)
	for i, shard := range unsafe.Slice(outputs, rows) {
		parity[i] = unsafe.Slice((*byte)(unsafe.Pointer(shard)), bytes)
	}
	if err := coder.encoder.EncodeIdx(unsafe.Slice((*byte)(unsafe.Pointer(input)), bytes), int(index), parity); err != nil {
		panic(err)
	}
}

// By Gauss and Jordan's elimination.
//
//export gf_invert_matrix
func gf_invert_matrix(in, out *C.uchar, n C.int) C.int {
	size := int(n)
	from, to := unsafe.Slice((*byte)(unsafe.Pointer(in)), size*size), unsafe.Slice((*byte)(unsafe.Pointer(out)), size*size)
	for i := range to {
		to[i] = 0
	}
	for i := 0; i < size; i++ {
		to[i*size+i] = 1
	}
	add := func(row []byte, by byte, other []byte) {
		for i := range row {
			row[i] ^= multiply(by, other[i])
		}
	}
	row := func(of []byte, i int) []byte { return of[i*size : (i+1)*size] }
	for i := 0; i < size; i++ {
		for r := i + 1; from[i*size+i] == 0; r++ {
			if r == size {
				return -1
			}
			add(row(from, i), 1, row(from, r))
			add(row(to, i), 1, row(to, r))
		}
		inverse := byte(1)
		for power := 0; power < 254; power++ {
			inverse = multiply(inverse, from[i*size+i])
		}
		add(row(from, i), inverse^1, append([]byte{}, row(from, i)...))
		add(row(to, i), inverse^1, append([]byte{}, row(to, i)...))
		for r := 0; r < size; r++ {
			if by := from[r*size+i]; r != i && by != 0 {
				add(row(from, r), by, row(from, i))
				add(row(to, r), by, row(to, i))
			}
		}
	}
	return 0
}

//export gf_mul
func gf_mul(a, b C.uchar) C.uchar { return C.uchar(multiply(byte(a), byte(b))) }

var version *C.char

//export isal_get_version_str
func isal_get_version_str() *C.char { return version }

func main() {}

func init() {
	version = C.CString("klauspost/reedsolomon")
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, each := range info.Deps {
			if each.Path == "github.com/klauspost/reedsolomon" {
				version = C.CString("klauspost/reedsolomon " + each.Version)
			}
		}
	}
}
