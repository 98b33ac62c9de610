// SPDX-License-Identifier: Apache-2.0
// Prelude of generated kernels, dialect OpenCL C 1.2.
#define GLOBAL __global
#define LOCAL __local
#define CONSTANT __constant
#define FUNCTION static
#ifdef SUB_GROUP
#define KERNEL(name) __attribute__((intel_reqd_sub_group_size(SUB_GROUP))) __kernel void name
#else
#define KERNEL(name) __kernel void name
#endif

#define GROUP ((ulong)get_group_id(0) + FIRST_GROUP)
#define ROW ((ulong)get_group_id(2) * get_num_groups(1) + get_group_id(1))
#define LOCAL_ID(dimension) ((uint)get_local_id(dimension))
#define LOCAL_SIZE(dimension) ((uint)get_local_size(dimension))
#define FOR_EACH_ITEM
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)

#if ELEMENT_BYTES == 4
typedef uint element;
#elif ELEMENT_BYTES == 8
typedef uint2 element;
#elif ELEMENT_BYTES == 16
typedef uint4 element;
#elif ELEMENT_BYTES == 32
typedef uint8 element;
#elif ELEMENT_BYTES == 64
typedef uint16 element;
#endif
#define ZERO ((element)(0))
typedef uint element_index;
// In 32 bits: AMD's loads add such an offset to a shard's address. A 64-bit offset takes an addition for each load.
#define OFFSET_BYTES(at) ((uint)((at)*ELEMENT_BYTES))

#if defined(BYTE_LANES) && defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__))
// A processor with vectors of bytes: the top bits become masks by one comparison. OpenCL C has vectors of at most 16
// elements, so only a clang that compiles for the processor itself takes these: rusticl's, which makes SPIR-V, ends the
// process at longer ones. In parts of 16 bytes the passes of 10+4 take 3.7 times as many instructions (AVX-512).
typedef char signed_bytes __attribute__((ext_vector_type(ELEMENT_BYTES)));
#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
  const signed_bytes bytes = __builtin_astype(sum, signed_bytes);
  const signed_bytes carry = (bytes < (signed_bytes)(0)) & (signed_bytes)(0x1d);
  return next ^ __builtin_astype(bytes + bytes, element) ^ __builtin_astype(carry, element);
}
#endif

#if defined(__AMDGCN__)
#if ELEMENT_BYTES == 4
#define FIRST_WORD(x) (x)
#else
#define FIRST_WORD(x) ((x).s0)
#endif
// Loads at `at` from here on wait for a value, as in CUDA C: `length` is less than 2^62, but no compiler knows that.
// With loads in any order 32+8 takes 177 registers on gfx942, and 126 with this, so four waves fit instead of two.
#define AFTER(at, value) at |= FIRST_WORD(value) & (uint)(length >> 62)
// A byte's top bit selects 0 or 0x1d: v_perm_b32 for four bytes at once. Seven operations a word, or six where three
// words are XORed by one (RDNA); without it they are eight and seven.
#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
  element carry = sum >> 7 & 0x01010101u;
  uint *const words = (uint *)&carry;
  for (uint i = 0; i < ELEMENT_BYTES / 4; ++i) words[i] = __builtin_amdgcn_perm(0, 0x1d00u, words[i]);
  return next ^ (sum & 0x7f7f7f7fu) << 1 ^ carry;
}
#endif

#define ATOMIC_ADD(p, value) atomic_add(p, value)
#define ATOMIC_MIN(p, value) atomic_min(p, value)
