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

#define GROUP ((ulong)blockIdx.x)
#define LAST_GROUP ((ulong)gridDim.x - 1)
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

// One access of full width each. Inputs go the way of data that nobody writes while the kernel runs; outputs do not.
FUNCTION element load_input(const uchar *p) {
  element_access access;
  access.whole = __ldg((const whole_element *)p);
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
  *(whole_element *)p = access.whole;
}
#define LOAD_INPUT_ALIGNED(p) load_input(p)
#define LOAD_ALIGNED(p) load_aligned(p)
#define STORE_ALIGNED(p, value) store_aligned(p, value)

// Each byte's top bit spread over the byte: byte permutation whose selectors have their own top bits set (PTX ISA,
// prmt). In PTX, because __byte_perm drops these bits.
#ifndef SPREAD_SIGNS
#define SPREAD_SIGNS(x) spread_signs(x)
FUNCTION uint spread_signs(uint x) {
  uint signs;
  asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(signs) : "r"(x));
  return signs;
}
#endif
#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
#pragma unroll
  for (int i = 0; i < ELEMENT_BYTES / 4; ++i) {
    const uint carry = SPREAD_SIGNS(sum.word[i]) & 0x1d1d1d1du;
    sum.word[i] = (sum.word[i] << 1 & 0xfefefefeu) ^ carry ^ next.word[i];
  }
  return sum;
}

FUNCTION void note_mismatch(uint *record, uint count, uint first) {
  atomicAdd(record, count);
  atomicMin(record + 1, first);
}

struct tandem_arguments {
  uchar *shards[256];
  ulong begin, end, length;
  uint *records;
  const uint *tables;
  uint *unused;
  uint columns, rows;
};
