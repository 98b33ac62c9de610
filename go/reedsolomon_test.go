// SPDX-License-Identifier: Apache-2.0

package reedsolomon

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, found, wanted error) {
	t.Helper()
	if !errors.Is(found, wanted) {
		t.Fatalf("the error is %v, not %v", found, wanted)
	}
}

func newCode(t *testing.T, k, m int, opts ...Option) Encoder {
	t.Helper()
	enc, err := New(k, m, opts...)
	must(t, err)
	return enc
}

// TANDEM_TEST_SEED repeats a run.
func seeded(t *testing.T) *rand.Rand {
	seed, err := strconv.ParseInt(os.Getenv("TANDEM_TEST_SEED"), 10, 64)
	if err != nil {
		seed = time.Now().UnixNano()
	}
	t.Logf("TANDEM_TEST_SEED=%d", seed)
	return rand.New(rand.NewSource(seed))
}

// stripe is random data with its parity.
func stripe(t *testing.T, random *rand.Rand, enc Encoder, count, size int) [][]byte {
	shards := make([][]byte, count)
	for i := range shards {
		shards[i] = make([]byte, size)
		random.Read(shards[i])
	}
	must(t, enc.Encode(shards))
	return shards
}

func clone(shards [][]byte) [][]byte {
	copies := make([][]byte, len(shards))
	for i, shard := range shards {
		copies[i] = append([]byte(nil), shard...)
	}
	return copies
}

func same(t *testing.T, found, wanted [][]byte, what string) {
	t.Helper()
	if len(found) != len(wanted) {
		t.Fatalf("%s: %d shards, not %d", what, len(found), len(wanted))
	}
	for i := range found {
		if !bytes.Equal(found[i], wanted[i]) {
			t.Fatalf("%s: shard %d differs", what, i)
		}
	}
}

// The sums are those of klauspost/reedsolomon at commit 0596408 (after v1.14.1): Encode of data[i][j] = 17*i + 5*j + 3*i*j + 1, and
// CRC-32 of the parity shards in their order. TestOneEncode of reedsolomon_test.go has the bytes of 5+5.
func TestParityIsThatOfKlauspost(t *testing.T) {
	custom := WithCustomMatrix([][]byte{{1, 1, 1, 1}, {1, 2, 4, 8}})
	for _, c := range []struct {
		k, m int
		sum  uint32
		opts []Option
	}{
		{1, 1, 0xdb7b821d, nil},
		{4, 2, 0xf9dc77c4, nil},
		{10, 4, 0xd2c79712, nil},
		{17, 3, 0x2661839b, nil},
		{128, 128, 0x7911790e, nil},
		{5, 0, 0, nil},
		{300, 40, 0x3b6a64d5, nil},
		{10, 4, 0xe68a6238, []Option{WithLeopardGF16(true)}},
		{10, 4, 0xd2c79712, []Option{WithLeopardGF16(false), WithAutoGoroutines(1 << 20), WithMaxGoroutines(1)}},
		{10, 4, 0x17e7e681, []Option{WithCauchyMatrix()}},
		{10, 4, 0x8f467a82, []Option{WithJerasureMatrix()}},
		{10, 4, 0x921865db, []Option{WithPAR1Matrix()}},
		{4, 2, 0x3ae91ec2, []Option{custom}},
	} {
		shards := make([][]byte, c.k+c.m)
		for i := range shards {
			for j := 0; j < 192; j++ {
				shards[i] = append(shards[i], byte(17*i+5*j+3*i*j+1))
			}
		}
		enc := newCode(t, c.k, c.m, c.opts...)
		must(t, enc.Encode(shards))
		if sum := crc32.ChecksumIEEE(bytes.Join(shards[c.k:], nil)); sum != c.sum {
			t.Errorf("%d+%d: 0x%08x, not 0x%08x", c.k, c.m, sum, c.sum)
		}
		if ok, err := enc.Verify(shards); !ok || err != nil {
			t.Errorf("%d+%d: Verify: %v, %v", c.k, c.m, ok, err)
		}
	}
	shards := [][]byte{{0, 1}, {4, 5}, {2, 3}, {6, 7}, {8, 9}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}
	must(t, newCode(t, 5, 5).Encode(shards))
	same(t, shards[5:], [][]byte{{12, 13}, {10, 11}, {14, 15}, {90, 91}, {94, 95}}, "5+5")
}

func TestAnyLossesUpToMShardsAreRebuilt(t *testing.T) {
	random := seeded(t)
	for round := 0; round < 150; round++ {
		k, m := 1+random.Intn(20), 1+random.Intn(8)
		opts, sizes := []Option(nil), []int{1, 64, 1000, 4096, 70000}
		switch round % 4 {
		case 1:
			opts = []Option{WithCauchyMatrix()}
		case 2:
			opts, sizes = []Option{WithLeopardGF16(true)}, []int{64, 640, 65536}
		case 3:
			opts = []Option{WithMaxGoroutines(1)}
		}
		enc := newCode(t, k, m, opts...)
		size := sizes[random.Intn(len(sizes))]
		shards := stripe(t, random, enc, k+m, size)
		lost := random.Perm(k + m)[:random.Intn(m+1)]
		what := fmt.Sprintf("%d+%d, %d bytes, lost %v", k, m, size, lost)

		kept := clone(shards)
		for _, i := range lost {
			kept[i] = [][]byte{nil, {}, kept[i][:0]}[random.Intn(3)]
		}
		same(t, kept, kept, what)
		all, data, some := append([][]byte(nil), kept...), append([][]byte(nil), kept...), append([][]byte(nil), kept...)
		must(t, enc.Reconstruct(all))
		same(t, all, shards, "Reconstruct "+what)
		must(t, enc.ReconstructData(data))
		same(t, data[:k], shards[:k], "ReconstructData "+what)
		same(t, data[k:], kept[k:], "ReconstructData "+what)

		required := make([]bool, []int{k, k + m}[random.Intn(2)])
		expected := append([][]byte(nil), kept...)
		for _, i := range lost {
			if i < len(required) && random.Intn(2) == 0 {
				required[i] = true
				expected[i] = shards[i]
			}
		}
		must(t, enc.ReconstructSome(some, required))
		same(t, some, expected, "ReconstructSome "+what)
	}
}

func TestALostShardIsRebuiltInItsOwnMemory(t *testing.T) {
	enc := newCode(t, 4, 2)
	shards := stripe(t, seeded(t), enc, 6, 100)
	first := &shards[2][0]
	expected := clone(shards)
	shards[2] = shards[2][:0]
	must(t, enc.Reconstruct(shards))
	same(t, shards, expected, "rebuilt")
	if &shards[2][0] != first {
		t.Error("the shard has other memory")
	}
}

func TestVerifySeesEveryChangedShard(t *testing.T) {
	random := seeded(t)
	enc := newCode(t, 6, 3)
	shards := stripe(t, random, enc, 9, 1000)
	for i, shard := range shards {
		at := random.Intn(len(shard))
		shard[at] ^= 1
		if ok, err := enc.Verify(shards); ok || err != nil {
			t.Errorf("shard %d, byte %d: %v, %v", i, at, ok, err)
		}
		shard[at] ^= 1
	}
}

func TestUpdateAndEncodeIdxMakeTheParityOfEncode(t *testing.T) {
	random := seeded(t)
	enc := newCode(t, 5, 3)
	shards := stripe(t, random, enc, 8, 777)
	changed := make([][]byte, 5)
	expected := clone(shards)
	for _, i := range []int{1, 4} {
		changed[i] = make([]byte, 777)
		random.Read(changed[i])
		expected[i] = changed[i]
	}
	must(t, enc.Encode(expected))
	given := append([][]byte(nil), shards...)
	given[0], given[2] = nil, nil
	must(t, enc.Update(given, changed))
	same(t, given[5:], expected[5:], "Update")

	parity := [][]byte{make([]byte, 777), make([]byte, 777), make([]byte, 777)}
	for _, i := range random.Perm(5) {
		must(t, enc.EncodeIdx(expected[i], i, parity))
	}
	same(t, parity, expected[5:], "EncodeIdx")
}

func TestSplitAndJoinAreInverse(t *testing.T) {
	random := seeded(t)
	for _, opts := range [][]Option{nil, {WithLeopardGF16(true)}} {
		for _, k := range []int{1, 3, 10} {
			enc := newCode(t, k, 2, opts...)
			for _, size := range []int{1, 2, 9, 10, 11, 64, 100, 1001} {
				for _, spare := range []int{0, 1, 50, 5000} {
					data := make([]byte, size, size+spare)
					random.Read(data)
					rest := data[size:cap(data)]
					random.Read(rest)
					content := append([]byte(nil), data...)
					shards, err := enc.Split(data)
					must(t, err)
					if len(shards) != k+2 {
						t.Fatalf("%d shards", len(shards))
					}
					must(t, enc.Encode(shards))
					padded := bytes.Join(shards[:k], nil)
					if !bytes.Equal(padded[:size], content) || len(bytes.Trim(padded[size:], "\x00")) != 0 {
						t.Fatalf("k = %d, %d bytes, %d spare: the data shards are not the data and zeros", k, size, spare)
					}
					shards[0] = nil
					must(t, enc.Reconstruct(shards))
					var joined bytes.Buffer
					must(t, enc.Join(&joined, shards, size))
					if !bytes.Equal(joined.Bytes(), content) {
						t.Fatalf("k = %d, %d bytes, %d spare: joined bytes differ", k, size, spare)
					}
				}
			}
		}
	}
	// As klauspost: six bytes each, and the last ones are all zero.
	shards, err := newCode(t, 10, 4).Split([]byte("The quick brown fox jumps over the lazy dog, twice."))
	must(t, err)
	same(t, [][]byte{shards[8], shards[9]}, [][]byte{[]byte("ce.\x00\x00\x00"), make([]byte, 6)}, "Split")
}

func TestErrorsAreThoseOfKlauspost(t *testing.T) {
	for _, c := range []struct {
		k, m int
		err  error
	}{{0, 1, ErrInvShardNum}, {-1, 4, ErrInvShardNum}, {1, -1, ErrInvShardNum}, {65536, 1, ErrMaxShardNum}, {1, 1 << 40, ErrMaxShardNum}} {
		enc, err := New(c.k, c.m)
		is(t, err, c.err)
		if enc != nil {
			t.Error("an encoder with an error")
		}
	}
	enc := newCode(t, 3, 2)
	sized := func(sizes ...int) [][]byte {
		shards := make([][]byte, len(sizes))
		for i, size := range sizes {
			if size >= 0 {
				shards[i] = make([]byte, size)
			}
		}
		return shards
	}
	for _, c := range []struct {
		shards [][]byte
		err    error
	}{
		{sized(4, 4, 4, 4), ErrTooFewShards},
		{sized(4, 4, 4, 4, 4, 4), ErrTooFewShards},
		{sized(-1, -1, -1, -1, -1), ErrShardNoData},
		{sized(0, 0, 0, 0, 0), ErrShardNoData},
		{sized(4, 4, 5, 4, 4), ErrShardSize},
	} {
		is(t, enc.Encode(c.shards), c.err)
		is(t, enc.Reconstruct(c.shards), c.err)
		is(t, enc.ReconstructData(c.shards), c.err)
		_, err := enc.Verify(c.shards)
		is(t, err, c.err)
		is(t, enc.Update(c.shards, sized(-1, -1, -1)), c.err)
	}
	is(t, enc.Encode(sized(4, 4, 4, 4, -1)), ErrShardSize)
	is(t, enc.Reconstruct(sized(4, 4, -1, -1, -1)), ErrTooFewShards)
	must(t, enc.ReconstructData(sized(4, 4, 4, -1, -1)))
	must(t, enc.ReconstructSome(sized(4, 4, -1, -1, -1), make([]bool, 5)))
	is(t, enc.ReconstructSome(sized(4, 4, 4, 4, -1), make([]bool, 4)), ErrInvalidInput)
	is(t, enc.Update(sized(4, 4, 4, 4, 4), sized(4, -1)), ErrTooFewShards)
	is(t, enc.Update(sized(4, -1, 4, 4, 4), sized(-1, 4, -1)), ErrInvalidInput)
	is(t, enc.Update(sized(4, 4, 4, 4, -1), sized(4, -1, -1)), ErrInvalidInput)
	is(t, enc.Update(sized(4, 4, 4, 4, 4), sized(5, -1, -1)), ErrShardSize)
	is(t, enc.EncodeIdx(make([]byte, 4), 3, sized(4, 4)), ErrInvShardNum)
	is(t, enc.EncodeIdx(make([]byte, 4), 0, sized(4)), ErrTooFewShards)
	is(t, enc.EncodeIdx(make([]byte, 3), 0, sized(4, 4)), ErrShardSize)
	_, err := enc.Split(nil)
	is(t, err, ErrShortData)
	var out bytes.Buffer
	is(t, enc.Join(&out, sized(4, 4), 4), ErrTooFewShards)
	is(t, enc.Join(&out, sized(4, -1, 4), 5), ErrReconstructRequired)
	is(t, enc.Join(&out, sized(4, 4, 4), 13), ErrShortData)
	if out.Len() != 0 {
		t.Error("Join wrote before it failed")
	}
	is(t, newCode(t, 3, 2, WithLeopardGF16(true)).Encode(sized(32, 32, 32, 32, 32)), ErrInvalidShardSize)
	is(t, newCode(t, 3, 0).Reconstruct(sized(4, 4, -1)), ErrTooFewShards)
}

func TestALossThatTheMatrixCannotRepairIsAnError(t *testing.T) {
	enc := newCode(t, 4, 2, WithCustomMatrix([][]byte{{1, 1, 1, 1}, {1, 1, 2, 3}}))
	shards := stripe(t, seeded(t), enc, 6, 16)
	shards[0], shards[1] = nil, nil
	var refused *Error
	if err := enc.Reconstruct(shards); !errors.As(err, &refused) || refused.Status != 8 || refused.Message == "" {
		t.Errorf("the error is %v", err)
	}
	if shards[0] != nil || shards[1] != nil {
		t.Error("a shard that was not rebuilt has data")
	}
	if _, err := New(4, 2, WithCustomMatrix([][]byte{{1, 1, 1, 1}, {1, 1, 2}})); err == nil {
		t.Error("a short row of coefficients was accepted")
	}
}

// Stacks grow, and memory is collected and allocated again, while calls run. Go moves stacks and nothing else.
func TestGoroutinesShareAnEncoderWhileMemoryIsCollected(t *testing.T) {
	enc := newCode(t, 10, 4)
	done := make(chan bool)
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	}()
	var group sync.WaitGroup
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func(seed int64) {
			defer group.Done()
			random := rand.New(rand.NewSource(seed))
			for round := 0; round < 30; round++ {
				var small [14][64]byte // on the stack, if it may
				shards := make([][]byte, 14)
				for i := range shards {
					shards[i] = small[i][:]
					if round%3 == 0 {
						shards[i] = make([]byte, 40000)
					}
					random.Read(shards[i])
				}
				deep(t, random.Intn(200), func() { must(t, enc.Encode(shards)) })
				expected := clone(shards)
				shards[random.Intn(14)], shards[random.Intn(14)] = nil, nil
				must(t, enc.Reconstruct(shards))
				same(t, shards, expected, "rebuilt")
			}
		}(int64(worker))
	}
	group.Wait()
	close(done)
}

// deep calls from deep down the stack.
func deep(t *testing.T, depth int, call func()) byte {
	var frame [512]byte
	if depth == 0 {
		call()
		return 0
	}
	return frame[depth] + deep(t, depth-1, call)
}

func TestShardsMayLieInMemoryOfMmap(t *testing.T) {
	memory, err := syscall.Mmap(-1, 0, 6*4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	defer syscall.Munmap(memory)
	seeded(t).Read(memory)
	enc := newCode(t, 4, 2)
	shards := make([][]byte, 6)
	for i := range shards {
		shards[i] = memory[i*4096 : (i+1)*4096 : (i+1)*4096]
	}
	must(t, enc.Encode(shards))
	expected := clone(shards)
	shards[0], shards[5] = shards[0][:0], shards[5][:0]
	must(t, enc.Reconstruct(shards))
	same(t, shards, expected, "mmap")
}

func ExampleNew() {
	enc, err := New(10, 4)
	if err != nil {
		panic(err)
	}
	data := []byte("any four of the fourteen shards may be lost")
	size := len(data)
	shards, _ := enc.Split(data)
	enc.Encode(shards)
	shards[0], shards[3], shards[7], shards[13] = nil, nil, nil, nil
	enc.Reconstruct(shards)
	enc.Join(os.Stdout, shards, size)
	// Output: any four of the fourteen shards may be lost
}
