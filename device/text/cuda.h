// SPDX-License-Identifier: Apache-2.0
// Prelude of generated kernels, dialect CUDA C (NVRTC: no headers).
#define GLOBAL
#define LOCAL
#define CONSTANT static __constant__
#define FUNCTION static __device__ __forceinline__
#define KERNEL(name) extern "C" __global__ void name

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;  // 64 bits: Linux

typedef uint element_index;  // of a shard's elements: addresses by one multiplication, not by two additions

#define GROUP (blockIdx.x + FIRST_GROUP)
#define ROW ((ulong)blockIdx.z * gridDim.y + blockIdx.y)
#define LOCAL_ID(dimension) ((dimension) == 0 ? threadIdx.x : (dimension) == 1 ? threadIdx.y : threadIdx.z)
#define LOCAL_SIZE(dimension) ((dimension) == 0 ? blockDim.x : (dimension) == 1 ? blockDim.y : blockDim.z)
#define FOR_EACH_ITEM
#define BARRIER __syncthreads()

struct __align__(ELEMENT_BYTES) element {
  uint word[ELEMENT_BYTES / 4];
};
#define ZERO (element{})

FUNCTION element operator^(element a, element b) {
#pragma unroll
  for (int i = 0; i < ELEMENT_BYTES / 4; ++i) a.word[i] ^= b.word[i];
  return a;
}

#if ELEMENT_BYTES == 4
typedef uint whole_element;
#elif ELEMENT_BYTES == 8
typedef uint2 whole_element;
#elif ELEMENT_BYTES == 16
typedef uint4 whole_element;
#endif

union element_access {
  whole_element whole;
  element value;
};

// One access of full width each. Inputs are loaded as data that does not change while the kernel runs; outputs are not.
#if defined(LOADS_STREAMING)
// Bytes are read once and written once, so these accesses should evict nothing from the cache.
#ifndef STREAM_LOAD
#define STREAM_LOAD(p) stream_load(p)
#define STREAM_STORE(p, value) __stcs(p, value)
#define STREAM_HINTS "ld.global.nc.L1::no_allocate.L2::128B"
FUNCTION uint stream_load(const uint *p) {
  uint v;
  asm(STREAM_HINTS ".u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
FUNCTION uint2 stream_load(const uint2 *p) {
  uint2 v;
  asm(STREAM_HINTS ".v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
FUNCTION uint4 stream_load(const uint4 *p) {
  uint4 v;
  asm(STREAM_HINTS ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
#endif
#else
#define STREAM_LOAD(p) __ldg(p)
#define STREAM_STORE(p, value) (*(p) = (value))
#endif
FUNCTION element load_input(const uchar *p) {
  element_access access;
  access.whole = STREAM_LOAD((const whole_element *)p);
  return access.value;
}
FUNCTION element load_aligned(const uchar *p) {
  element_access access;
  access.whole = *(const whole_element *)p;
  return access.value;
}
FUNCTION void store_aligned(uchar *p, element value) {
  element_access access;
  access.value = value;
  STREAM_STORE((whole_element *)p, access.whole);
}
#define LOAD_INPUT_ALIGNED(p) load_input(p)
#define LOAD_ALIGNED(p) load_aligned(p)
#define STORE_ALIGNED(p, value) store_aligned(p, value)

// Each byte's top bit spread over the byte: a byte permutation, with the top bit of each selector set (PTX ISA,
// prmt). In PTX, because __byte_perm drops these bits.
#ifndef SPREAD_SIGNS
#define SPREAD_SIGNS(x) spread_signs(x)
FUNCTION uint spread_signs(uint x) {
  uint signs;
  asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(signs) : "r"(x));
  return signs;
}
#endif
// Any function of three bits, as PTX's lop3 has it: `table` is what it makes of 0xf0, 0xcc and 0xaa. In PTX, because a
// compiler that may combine the XORs again finds fewer groups of three than there are.
#ifndef LOGIC3
#define LOGIC3(a, b, c, table) logic3<table>(a, b, c)
template <uint table>
FUNCTION uint logic3(uint a, uint b, uint c) {
  uint d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(table));
  return d;
}
#endif
// p ^= a ^ b for four words at once: NVRTC's time grows with the square of the number of asm statements (64+8, a word
// each: 1.6 s one by one, 0.4 s by fours). The results wait in registers of the statement, so that no input is
// overwritten: "+&r" would say so too, but NVRTC before 12.1 refuses it. ptxas removes the moves.
#ifndef XOR3_WORDS
#define XOR3_WORDS xor3_words
FUNCTION void xor3_words(uint &p, uint pa, uint pb, uint &q, uint qa, uint qb, uint &r, uint ra, uint rb, uint &s,
                         uint sa, uint sb) {
  asm("{\n\t.reg .b32 p, q, r;\n\tlop3.b32 p, %0, %4, %5, 0x96;\n\tlop3.b32 q, %1, %6, %7, 0x96;\n\t"
      "lop3.b32 r, %2, %8, %9, 0x96;\n\tlop3.b32 %3, %3, %10, %11, 0x96;\n\t"
      "mov.b32 %0, p;\n\tmov.b32 %1, q;\n\tmov.b32 %2, r;\n\t}"
      : "+r"(p), "+r"(q), "+r"(r), "+r"(s)
      : "r"(pa), "r"(pb), "r"(qa), "r"(qb), "r"(ra), "r"(rb), "r"(sa), "r"(sb));
}
#endif
#define A_XOR_B_XOR_C 0x96
#define A_AND_B_XOR_C 0x6a
#define A_AND_B_OR_C 0xea
#define A_OR_B_BY_C 0xe4

#define XOR3_WORD(p, a, b) p = LOGIC3(p, a, b, A_XOR_B_XOR_C)
#define SELECT(mask, a, b) LOGIC3(a, b, mask, A_OR_B_BY_C)
FUNCTION void XOR3_TO(element &p, element a, element b) {
#pragma unroll
  for (int i = 0; i < ELEMENT_BYTES / 4; ++i) p.word[i] = LOGIC3(p.word[i], a.word[i], b.word[i], A_XOR_B_XOR_C);
}
FUNCTION void XOR3_FOUR(element &p, element pa, element pb, element &q, element qa, element qb, element &r, element ra,
                        element rb, element &s, element sa, element sb) {
#pragma unroll
  for (int i = 0; i < ELEMENT_BYTES / 4; ++i)
    XOR3_WORDS(p.word[i], pa.word[i], pb.word[i], q.word[i], qa.word[i], qb.word[i], r.word[i], ra.word[i], rb.word[i],
               s.word[i], sa.word[i], sb.word[i]);
}

#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
#pragma unroll
  for (int i = 0; i < ELEMENT_BYTES / 4; ++i) {
    const uint signs = SPREAD_SIGNS(sum.word[i]);
    const uint doubled = LOGIC3(sum.word[i] << 1, 0xfefefefeu, next.word[i], A_AND_B_XOR_C);
    sum.word[i] = LOGIC3(signs, 0x1d1d1d1du, doubled, A_AND_B_XOR_C);
  }
  return sum;
}

// The compiler must not see that two passes read the same: it would keep all inputs in registers from one to the next.
#ifndef FORGET
#define FORGET(x) asm volatile("" : "+r"(x))
#endif

// Loads at `at` from here on wait for a value. `columns` is at most 256, so the mask is 0, but no compiler knows that.
// With loads in any order ptxas puts most of them first: 32+2 takes 240 registers, and 128 with this; 64+8 takes 168
// and 108. Addresses from a table of stripes wait too: 32+8 takes 168 registers, and 95 with this.
#define AFTER(at, value) at = NOTHING_OF(value, at), MOVE_ROW(NOTHING_OF(value, 0))
#define NOTHING_OF(value, to) LOGIC3((value).word[0], ARGUMENTS columns >> 31, to, A_AND_B_OR_C)

// Technique tables: one byte permutation makes an address. Bits 0-7: a nibble times four, plus the column's bit 7.
// Bits 8-31: the column's address. Tables lie at multiples of 128 bytes.
#ifndef LOCAL_WORD
#define LOCAL_ADDRESS(p) ((uint)__cvta_generic_to_shared(p))
#define LOCAL_WORD(address, offset) local_word<offset>(address)
template <uint offset>
FUNCTION uint local_word(uint address) {
  uint word;
  asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(word) : "r"(address), "n"(offset) : "memory");
  return word;
}
#endif
#define LOOK_UP(sums, table, x) look_up(sums, LOCAL_ADDRESS(table), x)
FUNCTION void look_up(uint *sums, uint table, const uint *x) {
  const uint column = __byte_perm(table, 0, 0x0000);
#pragma unroll
  for (int w = 0; w < ELEMENT_BYTES / 4; ++w) {
    const uint low = LOGIC3(x[w] << 2, 0x3c3c3c3cu, column, A_AND_B_OR_C);
    const uint high = LOGIC3(x[w] >> 2, 0x3c3c3c3cu, column, A_AND_B_OR_C);
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      uint &sum = sums[w * 4 + b];
      sum = LOGIC3(sum, LOCAL_WORD(__byte_perm(low, table, 0x7650 + b), 0),
                   LOCAL_WORD(__byte_perm(high, table, 0x7650 + b), 64), A_XOR_B_XOR_C);
    }
  }
}
// Four sums of four outputs each become a word of each output.
#define SUMS_TO_OUTPUTS(sums) sums_to_outputs(sums)
#define OUTPUT_WORD(sums, w, r) ((sums)[(w)*4 + (r)])
FUNCTION void sums_to_outputs(uint *sums) {
#pragma unroll
  for (int w = 0; w < ELEMENT_BYTES; w += 4) {
    const uint a = __byte_perm(sums[w], sums[w + 1], 0x5140), b = __byte_perm(sums[w + 2], sums[w + 3], 0x5140);
    const uint c = __byte_perm(sums[w], sums[w + 1], 0x7362), d = __byte_perm(sums[w + 2], sums[w + 3], 0x7362);
    sums[w] = __byte_perm(a, b, 0x5410);
    sums[w + 1] = __byte_perm(a, b, 0x7632);
    sums[w + 2] = __byte_perm(c, d, 0x5410);
    sums[w + 3] = __byte_perm(c, d, 0x7632);
  }
}
#define UNROLL _Pragma("unroll")

#if defined(LOADS_ASYNC)
// Inputs come by copies to shared memory that a thread starts, waits for and reads itself, so no barrier is needed:
// while four of them are XORed, the next four are on their way. Slots 0 to 7, each an element of every thread.
#ifndef COPY_START
#define COPY_START(to, from) \
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(ELEMENT_BYTES) : "memory")
#define COPY_CLOSE asm volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(open) asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory")
extern __shared__ __align__(128) uint copies[];
#endif
#define SLOT(slot) (copies + ((slot)*ITEM_COUNT + ITEM) * (ELEMENT_BYTES / 4))
#define FETCH(slot, p) COPY_START(LOCAL_ADDRESS(SLOT(slot)), p)
#define FETCHED(slot) fetched(SLOT(slot))
FUNCTION element fetched(const uint *slot) {
  element_access access;
  access.whole = *(const whole_element *)slot;
  return access.value;
}
#endif

#define ATOMIC_ADD(p, value) atomicAdd(p, value)
#define ATOMIC_MIN(p, value) atomicMin(p, value)

struct tandem_arguments {
  uchar *shards[256];
  ulong begin, end, length;
  uint *records;
  const uint *tables;
  uint *unused;
  uint columns, rows;
};
