//! Both ends of conversations.

use std::future::Future;

use everfold_protocol::{
    Incarnation, JobId, ProcessId, Rank,
    frame::{self, PRELUDE_BYTES, Prelude},
    seal::{KEY_BYTES, Seal},
};
use everfold_runtime::transport::handshake::{Key, Seals};
use serde::{Serialize, Serializer, ser::SerializeTuple};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The job, and what its processes know.
pub const JOB: JobId = JobId(7);
pub const KEY: Key = Key([9; 32]);

/// The first life of a rank.
pub fn process(rank: u32) -> ProcessId {
    ProcessId { rank: Rank(rank), incarnation: Incarnation(0) }
}

/// Bytes that are encoded as they are.
pub struct Raw<'a>(pub &'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

/// The next frame, with this payload.
pub fn sealed<T: Serialize>(value: &T, seal: &mut Seal) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_into(value, u32::MAX.into(), seal, &mut bytes).expect("checks are short");
    bytes
}

/// The seals of both ends of a connection; what one end seals, the other opens.
pub fn seals() -> [Seals; 2] {
    let seal = |key| Seal::new([key; KEY_BYTES]);
    [Seals { outward: seal(1), inward: seal(2) }, Seals { outward: seal(2), inward: seal(1) }]
}

/// Reads the bytes of one frame, genuine or not; `None` when there are no more.
pub async fn next_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PRELUDE_BYTES];
    stream.read_exact(&mut bytes).await.ok()?;
    let prelude = Prelude::parse(bytes.first_chunk()?, 1 << 20).expect("frames of ours are well-formed");
    bytes.resize(PRELUDE_BYTES + prelude.payload_bytes as usize, 0);
    stream.read_exact(&mut bytes[PRELUDE_BYTES..]).await.ok()?;
    Some(bytes)
}

/// Waits for something that happens on this thread.
pub fn wait_for<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("there are descriptors");
    }
    RUNTIME.with(|runtime| {
        let result = runtime.block_on(future);
        // What it has left behind ends before the next check begins.
        runtime.block_on(async {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        });
        result
    })
}
