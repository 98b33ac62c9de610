// SPDX-License-Identifier: Apache-2.0
//! What this crate uses of tandem.h and tools.h. Structs only grow at their ends, and their size tells which version they are.
use std::os::raw::{c_char, c_void};

pub type Codec = *mut c_void;
pub type Context = *mut c_void;
/// Pointers to shards. In C they are `const void *const *` where a function only reads the shards.
pub type Shards = *const *mut c_void;
pub type Shard = *const c_void;

pub const MATRIX_IS_GF16: u32 = 1;

// The first fields of each struct. The library takes the others for zero.
#[repr(C)]
pub struct CodecOptions {
    pub struct_bytes: usize,
    pub k: u32,
    pub m: u32,
    pub matrix: i32,
    pub field: i32,
    pub coefficients: *const c_void,
    pub allow_non_mds: i32,
    pub reserved: i32,
}

#[repr(C)]
pub struct ContextOptions {
    pub struct_bytes: usize,
    pub backend: *const c_char,
    pub kernel: *const c_char,
    pub thread_count: u32,
    pub log_level: i32,
}

#[repr(C)]
pub struct VerifyResult {
    pub struct_bytes: usize,
    pub consistent: i32,
    pub bad_parity_count: u32,
}

extern "C" {
    pub fn tandem_last_error_message() -> *const c_char;
    pub fn tandem_matrix_from_name(name: *const c_char, matrix_out: *mut i32) -> i32;
    pub fn tandem_matrix_traits(matrix: i32) -> u32;
    pub fn tandem_codec_create(options: *const CodecOptions, codec_out: *mut Codec) -> i32;
    pub fn tandem_codec_destroy(codec: Codec);
    pub fn tandem_context_create(options: *const ContextOptions, context_out: *mut Context) -> i32;
    pub fn tandem_context_destroy(context: Context);
    pub fn tandem_encode(context: Context, codec: Codec, data: Shards, parity: Shards, bytes: usize) -> i32;
    pub fn tandem_decode(context: Context, codec: Codec, shards: Shards, present: *const u8, bytes: usize) -> i32;
    pub fn tandem_verify(context: Context, codec: Codec, shards: Shards, bytes: usize, result_out: *mut VerifyResult) -> i32;
    pub fn tandem_update(context: Context, codec: Codec, i: u32, old: Shard, new: Shard, parity: Shards, bytes: usize) -> i32;
}
