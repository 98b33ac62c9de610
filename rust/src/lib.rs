// SPDX-License-Identifier: Apache-2.0
//! Reed-Solomon erasure coding by the C library Tandem: any k of k data and m parity shards give the others back. The interface
//! is that of the crate `reed-solomon-erasure`, and [`ReedSolomon::new`] makes the same parity bytes.
//!
//! ```
//! use tandem_ec::ReedSolomon;
//!
//! let code = ReedSolomon::new(3, 2)?;
//! let mut shards = vec![vec![1, 2, 3], vec![4, 5, 6], vec![7, 8, 9], vec![0; 3], vec![0; 3]];
//! code.encode(&mut shards)?;
//!
//! let mut kept: Vec<Option<Vec<u8>>> = shards.iter().cloned().map(Some).collect();
//! kept[0] = None;
//! kept[4] = None;
//! code.reconstruct(&mut kept)?;
//! assert!(kept.iter().flatten().eq(&shards));
//! # Ok::<(), tandem_ec::Error>(())
//! ```
//!
//! The shards of a call have the same length. They are not copied. A [`ReedSolomon`] is immutable, and threads may share it.
//! Calls that move 256 KiB or more run on all cores. In a program with its own pool of threads, set [`Options::threads`] to 1:
//! each call then stays on its thread, unless a GPU joins in (after 4 GiB; [`Options::backend`] "cpu" has none).

mod error;
mod ffi;
mod shards;

use std::ffi::CString;
use std::mem::size_of;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use error::{check, require, require_count};
use shards::Pointers;

pub use error::{status, Error};
pub use shards::ReconstructShard;

/// The path of the code of bytes in the crate `reed-solomon-erasure`.
pub mod galois_8 {
    pub use crate::ReedSolomon;
}

/// Which code, and where it is computed.
///
/// ```
/// use tandem_ec::{Options, ReedSolomon};
/// let code = ReedSolomon::with_options(10, 4, Options { matrix: "isal-cauchy", threads: 1, ..Options::default() })?;
/// # Ok::<(), tandem_ec::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The generator matrix: "backblaze", the default, "isal-cauchy", "leopard16", ... The page docs/matrices.md of Tandem lists
    /// them, with the programs that make the same bytes.
    pub matrix: &'a str,
    /// Accepts a matrix that cannot recover from every loss of m shards.
    pub allow_non_mds: bool,
    /// Threads of the CPU for one call. 0, the default: all cores.
    pub threads: u32,
    /// "cpu", "hybrid", "cuda:0", ... Empty, the default: the library's choice.
    pub backend: &'a str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { matrix: "backblaze", allow_non_mds: false, threads: 0, backend: "" }
    }
}

/// What the library made. The context NULL is the one that the process shares.
#[derive(Debug)]
struct Objects {
    codec: ffi::Codec,
    context: ffi::Context,
}

// SAFETY: the library lets any thread call any function on the same objects. They are destroyed when no call can have them.
unsafe impl Send for Objects {}
unsafe impl Sync for Objects {}

impl Drop for Objects {
    fn drop(&mut self) {
        // SAFETY: both are ours or NULL.
        unsafe {
            ffi::tandem_codec_destroy(self.codec);
            ffi::tandem_context_destroy(self.context);
        }
    }
}

/// A code of k data and m parity shards. A clone shares its memory.
///
/// Parity is overwritten. After an error, nothing was written, unless the error is that of a GPU.
#[derive(Clone, Debug)]
pub struct ReedSolomon {
    objects: Arc<Objects>,
    k: usize,
    m: usize,
}

impl ReedSolomon {
    /// The code of `reed-solomon-erasure`, Backblaze, klauspost/reedsolomon and MinIO. It has at most 256 shards.
    pub fn new(data_shards: usize, parity_shards: usize) -> Result<ReedSolomon, Error> {
        Self::with_options(data_shards, parity_shards, Options::default())
    }

    /// Any other code.
    pub fn with_options(data_shards: usize, parity_shards: usize, options: Options) -> Result<ReedSolomon, Error> {
        let (k, m) = (data_shards, parity_shards);
        let (matrix_name, backend, mut matrix) = (c_string(options.matrix)?, c_string(options.backend)?, 0);
        // SAFETY: a zero-terminated string, and a place for the number.
        check(unsafe { ffi::tandem_matrix_from_name(matrix_name.as_ptr(), &mut matrix) })?;
        // SAFETY: takes any number.
        let is_wide = unsafe { ffi::tandem_matrix_traits(matrix) } & ffi::MATRIX_IS_GF16 != 0;
        let limit = if is_wide { 65536 } else { 256 };
        require(k > 0, Error::TooFewDataShards)?;
        require(m > 0, Error::TooFewParityShards)?;
        require(k.saturating_add(m) <= limit, Error::TooManyShards)?;
        let mut objects = Objects { codec: null_mut(), context: null_mut() };
        let codec_options = ffi::CodecOptions {
            struct_bytes: size_of::<ffi::CodecOptions>(),
            k: k as u32,
            m: m as u32,
            matrix,
            field: 0,
            coefficients: null(),
            allow_non_mds: options.allow_non_mds.into(),
            reserved: 0,
        };
        // SAFETY: options with their size; a place for the pointer.
        check(unsafe { ffi::tandem_codec_create(&codec_options, &mut objects.codec) })?;
        if options.threads != 0 || !options.backend.is_empty() {
            let context_options = ffi::ContextOptions {
                struct_bytes: size_of::<ffi::ContextOptions>(),
                backend: if options.backend.is_empty() { null() } else { backend.as_ptr() },
                kernel: null(),
                thread_count: options.threads,
                log_level: 0,
            };
            // SAFETY: as above. The strings are copied.
            check(unsafe { ffi::tandem_context_create(&context_options, &mut objects.context) })?;
        }
        Ok(ReedSolomon { objects: Arc::new(objects), k, m })
    }

    pub fn data_shard_count(&self) -> usize {
        self.k
    }

    pub fn parity_shard_count(&self) -> usize {
        self.m
    }

    pub fn total_shard_count(&self) -> usize {
        self.k + self.m
    }

    /// Computes the parity shards: the last m of the k + m shards.
    pub fn encode<T, U>(&self, mut shards: T) -> Result<(), Error>
    where
        T: AsRef<[U]> + AsMut<[U]>,
        U: AsRef<[u8]> + AsMut<[u8]>,
    {
        let shards = shards.as_mut();
        require_count(shards.len(), self.k + self.m, Error::TooFewShards, Error::TooManyShards)?;
        let (data, parity) = shards.split_at_mut(self.k);
        self.encode_sep(data, parity)
    }

    /// As `encode`, with the parity shards apart from the data shards.
    pub fn encode_sep<T: AsRef<[u8]>, U: AsRef<[u8]> + AsMut<[u8]>>(&self, data: &[T], parity: &mut [U]) -> Result<(), Error> {
        require_count(data.len(), self.k, Error::TooFewDataShards, Error::TooManyDataShards)?;
        let (Objects { codec, context }, mut shards) = (&*self.objects, Pointers::default());
        data.iter().try_for_each(|shard| shards.read(shard.as_ref()))?;
        self.add_parity(&mut shards, parity)?;
        // SAFETY: k shards to read and m to write, of that length.
        check(unsafe {
            ffi::tandem_encode(*context, *codec, shards.array.as_ptr(), shards.array[self.k..].as_ptr(), shards.shard_bytes)
        })
    }

    /// Brings parity up to date after data shard `i` changed. The other data shards are not needed.
    pub fn update<U: AsRef<[u8]> + AsMut<[u8]>>(&self, i: usize, old: &[u8], new: &[u8], parity: &mut [U]) -> Result<(), Error> {
        require(i < self.k, Error::InvalidIndex)?;
        let (Objects { codec, context }, mut shards) = (&*self.objects, Pointers::default());
        shards.read(old)?;
        shards.read(new)?;
        self.add_parity(&mut shards, parity)?;
        let (old, new) = (old.as_ptr().cast(), new.as_ptr().cast());
        // SAFETY: two shards to read and m to write, of that length.
        check(unsafe { ffi::tandem_update(*context, *codec, i as u32, old, new, shards.array[2..].as_ptr(), shards.shard_bytes) })
    }

    /// Whether parity matches data.
    pub fn verify<T: AsRef<[u8]>>(&self, shards: &[T]) -> Result<bool, Error> {
        require_count(shards.len(), self.k + self.m, Error::TooFewShards, Error::TooManyShards)?;
        let (Objects { codec, context }, mut pointers) = (&*self.objects, Pointers::default());
        shards.iter().try_for_each(|shard| pointers.read(shard.as_ref()))?;
        let mut result = ffi::VerifyResult { struct_bytes: size_of::<ffi::VerifyResult>(), consistent: 0, bad_parity_count: 0 };
        // SAFETY: k + m shards to read, of that length; a result with its size.
        check(unsafe { ffi::tandem_verify(*context, *codec, pointers.array.as_ptr(), pointers.shard_bytes, &mut result) })?;
        Ok(result.consistent != 0)
    }

    /// Rebuilds the missing shards from the present ones. A present shard with wrong bytes gives wrong bytes.
    pub fn reconstruct<T: ReconstructShard>(&self, shards: &mut [T]) -> Result<(), Error> {
        self.decode(shards, self.k + self.m)
    }

    /// As `reconstruct`, and leaves missing parity shards as they are.
    pub fn reconstruct_data<T: ReconstructShard>(&self, shards: &mut [T]) -> Result<(), Error> {
        self.decode(shards, self.k)
    }

    /// Rebuilds the missing ones of the first `wanted` shards.
    fn decode<T: ReconstructShard>(&self, shards: &mut [T], wanted: usize) -> Result<(), Error> {
        require_count(shards.len(), self.k + self.m, Error::TooFewShards, Error::TooManyShards)?;
        let present: Vec<u8> = shards.iter().map(|shard| shard.length().is_some().into()).collect();
        let length = shards.iter().find_map(|shard| shard.length()).ok_or(Error::TooFewShardsPresent)?;
        require(present.iter().filter(|&&flag| flag != 0).count() >= self.k, Error::TooFewShardsPresent)?;
        let (Objects { codec, context }, mut pointers) = (&*self.objects, Pointers::default());
        let added = shards.iter_mut().enumerate().try_for_each(|(i, shard)| {
            if present[i] != 0 || i < wanted {
                return pointers.write(shard.get_or_initialize(length));
            }
            pointers.array.push(null_mut());
            Ok(())
        });
        let (array, shard_bytes) = (pointers.array.as_ptr(), pointers.shard_bytes);
        // SAFETY: k + m shards of that length, to read where `present` has a flag, and else to write. NULL is left out.
        let done =
            added.and_then(|()| check(unsafe { ffi::tandem_decode(*context, *codec, array, present.as_ptr(), shard_bytes) }));
        if done.is_err() {
            shards.iter_mut().zip(present).filter(|(_, flag)| *flag == 0).for_each(|(shard, _)| shard.forget());
        }
        done
    }

    fn add_parity<'a, U: AsMut<[u8]>>(&self, shards: &mut Pointers<'a>, parity: &'a mut [U]) -> Result<(), Error> {
        require_count(parity.len(), self.m, Error::TooFewParityShards, Error::TooManyParityShards)?;
        parity.iter_mut().try_for_each(|shard| shards.write(shard.as_mut()))
    }
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Tandem(status::INVALID_ARGUMENT, format!("{text:?} has a zero byte")))
}
