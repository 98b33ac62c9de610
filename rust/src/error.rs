// SPDX-License-Identifier: Apache-2.0
use std::ffi::CStr;
use std::fmt;

use crate::ffi;

/// Why a call did nothing. All but `Tandem` are errors of the crate `reed-solomon-erasure`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    TooFewShards,
    TooManyShards,
    TooFewDataShards,
    TooManyDataShards,
    TooFewParityShards,
    TooManyParityShards,
    IncorrectShardSize,
    TooFewShardsPresent,
    EmptyShard,
    InvalidIndex,
    /// The library refused: a status of tandem.h, such as [`status::NOT_MDS`], and a sentence with the numbers.
    Tandem(i32, String),
}

/// The statuses that a program may want to tell apart. tandem.h has all.
pub mod status {
    pub const INVALID_ARGUMENT: i32 = 1;
    pub const UNAVAILABLE: i32 = 3;
    pub const OUT_OF_MEMORY: i32 = 4;
    pub const NOT_MDS: i32 = 7;
    pub const NOT_RECOVERABLE: i32 = 8;
    /// A GPU failed. What was to be written has no defined bytes.
    pub const DEVICE: i32 = 10;
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Error::TooFewShards => "fewer shards than the code has",
            Error::TooManyShards => "more shards than the code has, or can have",
            Error::TooFewDataShards => "fewer data shards than the code has, or none",
            Error::TooManyDataShards => "more data shards than the code has",
            Error::TooFewParityShards => "fewer parity shards than the code has, or none",
            Error::TooManyParityShards => "more parity shards than the code has",
            Error::IncorrectShardSize => "the shards have different lengths",
            Error::TooFewShardsPresent => "fewer shards are present than the code has data shards",
            Error::EmptyShard => "a shard has no bytes",
            Error::InvalidIndex => "the index is not that of a data shard",
            Error::Tandem(_, message) => message,
        })
    }
}

impl std::error::Error for Error {}

/// The result of a call of the library.
pub(crate) fn check(status: i32) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the message of this thread, zero-terminated. It lives until the thread's next failure, and is copied.
    let message = unsafe { CStr::from_ptr(ffi::tandem_last_error_message()) }.to_string_lossy().into_owned();
    Err(Error::Tandem(status, message))
}

pub(crate) fn require(holds: bool, error: Error) -> Result<(), Error> {
    holds.then_some(()).ok_or(error)
}

pub(crate) fn require_count(found: usize, wanted: usize, too_few: Error, too_many: Error) -> Result<(), Error> {
    require(found >= wanted, too_few)?;
    require(found <= wanted, too_many)
}
