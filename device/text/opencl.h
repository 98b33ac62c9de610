// SPDX-License-Identifier: Apache-2.0
// Prelude of generated kernels, dialect OpenCL C 1.2.
#define GLOBAL __global
#define LOCAL __local
#define CONSTANT __constant
#define FUNCTION static
#define KERNEL(name) __kernel void name

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
typedef ulong element_index;

#if defined(BYTE_LANES) && defined(__clang__)
// A processor with vectors of bytes: the top bits become masks by one comparison.
typedef char signed_bytes __attribute__((ext_vector_type(ELEMENT_BYTES)));
#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
  const signed_bytes bytes = __builtin_astype(sum, signed_bytes);
  const signed_bytes carry = (bytes < (signed_bytes)(0)) & (signed_bytes)(0x1d);
  return next ^ __builtin_astype(bytes + bytes, element) ^ __builtin_astype(carry, element);
}
#endif

#define ATOMIC_ADD(p, value) atomic_add(p, value)
#define ATOMIC_MIN(p, value) atomic_min(p, value)
