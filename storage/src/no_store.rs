//! The store of a build without the feature `disk`: it cannot be opened.

use std::path::Path;

use everfold_protocol::ReductionId;

use crate::{
    durability::Durability,
    error::StoreError,
    key::{Kind, RecordKey},
};

/// The store of one process. There is none in this build.
#[derive(Debug)]
pub enum Store {}

impl Store {
    /// Does nothing: no call will be under way.
    pub fn prepare() {}

    /// Opens no store.
    ///
    /// # Errors
    /// Always [`StoreError::NoDisk`].
    pub fn open(_path: &Path) -> Result<Self, StoreError> {
        Err(StoreError::NoDisk)
    }

    /// The directory of the store.
    pub fn path(&self) -> &Path {
        match *self {}
    }

    /// Stores a value.
    ///
    /// # Errors
    /// None.
    pub fn put(&self, _: Kind, _: RecordKey, _: &[u8], _: Durability) -> Result<(), StoreError> {
        match *self {}
    }

    /// The value stored under a key.
    ///
    /// # Errors
    /// None.
    pub fn get(&self, _: Kind, _: RecordKey) -> Result<Option<Vec<u8>>, StoreError> {
        match *self {}
    }

    /// Forgets all records of a reduction.
    ///
    /// # Errors
    /// None.
    pub fn release(&self, _: ReductionId) -> Result<(), StoreError> {
        match *self {}
    }
}

/// Like the store that there is in other builds, it is closed where it is dropped.
impl Drop for Store {
    fn drop(&mut self) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_disk_says_so() {
        let error = Store::open(Path::new("/nowhere")).unwrap_err();
        assert!(matches!(error, StoreError::NoDisk));
        assert!(error.to_string().contains("without its feature `disk`"));
    }
}
