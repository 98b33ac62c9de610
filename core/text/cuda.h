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

// One access of full width each, past the L1: shards are read once a pass and never again.
FUNCTION element load_aligned(const uchar *p) {
  union {
    whole_element whole;
    element value;
  } both;
  both.whole = __ldg((const whole_element *)p);
  return both.value;
}
FUNCTION void store_aligned(uchar *p, element value) {
  union {
    whole_element whole;
    element value;
  } both;
  both.value = value;
  *(whole_element *)p = both.whole;
}
#define LOAD_ALIGNED(p) load_aligned(p)
#define STORE_ALIGNED(p, value) store_aligned(p, value)

// Byte permutation with the selector's sign bits set spreads each byte's top bit over the byte (PTX ISA, prmt).
#define HORNER(sum, next) horner(sum, next)
FUNCTION element horner(element sum, element next) {
#pragma unroll
  for (int i = 0; i < ELEMENT_BYTES / 4; ++i) {
    const uint carry = __byte_perm(sum.word[i], 0, 0xba98) & 0x1d1d1d1du;
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
