// SPDX-License-Identifier: Apache-2.0
use std::marker::PhantomData;
use std::os::raw::c_void;

use crate::error::{require, Error};

/// Pointers to shards of one length, for one call; NULL stands for a shard that the call leaves alone. The shards stay borrowed
/// for 'a: until then, safe code cannot reach those that are written, or change those that are read.
#[derive(Default)]
pub(crate) struct Pointers<'a> {
    pub array: Vec<*mut c_void>,
    pub shard_bytes: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Pointers<'a> {
    /// Adds a shard that is only read.
    pub fn read(&mut self, shard: &'a [u8]) -> Result<(), Error> {
        self.add(shard.as_ptr() as *mut c_void, shard.len())
    }

    /// Adds a shard that may be written.
    pub fn write(&mut self, shard: &'a mut [u8]) -> Result<(), Error> {
        self.add(shard.as_mut_ptr().cast(), shard.len())
    }

    fn add(&mut self, shard: *mut c_void, length: usize) -> Result<(), Error> {
        self.array.push(shard);
        self.shard_bytes = if self.shard_bytes == 0 { length } else { self.shard_bytes };
        require(length != 0, Error::EmptyShard)?;
        require(length == self.shard_bytes, Error::IncorrectShardSize)
    }
}

/// A shard that may be missing: `Option<Vec<u8>>` and the like, where a missing shard is `None` and gets memory of its own; or
/// `(buffer, is_present)`, where a missing shard is written into its buffer, and the flag is left alone.
pub trait ReconstructShard {
    /// The length of the shard; `None` if it is missing.
    fn length(&self) -> Option<usize>;

    /// The shard; or if it is missing, a buffer of `length` bytes.
    fn get_or_initialize(&mut self, length: usize) -> &mut [u8];

    /// The call failed: gives up the buffer that `get_or_initialize` made.
    fn forget(&mut self) {}
}

impl<T: AsRef<[u8]> + AsMut<[u8]> + FromIterator<u8>> ReconstructShard for Option<T> {
    fn length(&self) -> Option<usize> {
        self.as_ref().map(|shard| shard.as_ref().len())
    }

    fn get_or_initialize(&mut self, length: usize) -> &mut [u8] {
        self.get_or_insert_with(|| std::iter::repeat(0).take(length).collect()).as_mut()
    }

    fn forget(&mut self) {
        *self = None;
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> ReconstructShard for (T, bool) {
    fn length(&self) -> Option<usize> {
        self.1.then(|| self.0.as_ref().len())
    }

    fn get_or_initialize(&mut self, _length: usize) -> &mut [u8] {
        self.0.as_mut()
    }
}
