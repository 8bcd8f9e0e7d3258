//! Frames over a connection.

use everfold_protocol::{
    frame::{self, FrameError, PRELUDE_BYTES, Prelude},
    message::Header,
    seal::Seal,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::super::error::HandshakeError;

/// Writes one value as a frame.
///
/// # Errors
/// The value is over `limit`, or the connection broke.
pub async fn write_frame<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
    limit: u64,
    seal: &mut Seal,
) -> Result<(), HandshakeError> {
    let mut bytes = Vec::new();
    frame::encode_into(value, limit, seal, &mut bytes)?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    Ok(())
}

/// Reads one frame.
///
/// # Errors
/// It is not a valid frame, or the connection broke.
pub async fn read_frame<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    limit: u64,
    seal: &mut Seal,
) -> Result<T, HandshakeError> {
    let mut prelude = [0; PRELUDE_BYTES];
    stream.read_exact(&mut prelude).await?;
    let prelude = Prelude::parse(&prelude, limit)?;
    let mut payload = vec![0; prelude.payload_bytes as usize];
    stream.read_exact(&mut payload).await?;
    Ok(prelude.decode(&payload, seal)?)
}

/// Most bytes of messages that are put into one frame, as far as single messages allow.
const BATCH_BYTES: usize = 1 << 20;

/// Appends `messages` to `out`, all behind the same header, in as few frames as are reasonable.
///
/// # Errors
/// A single message is over `limit`.
pub fn encode_batch<M: Serialize>(
    header: &Header,
    messages: &[M],
    limit: u64,
    seal: &mut Seal,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let before = out.len();
    let batch = frame::encode_into(&(header, messages), limit.min(BATCH_BYTES as u64), seal, out);
    match batch {
        Err(FrameError::TooLong { .. }) if messages.len() > 1 => {
            out.truncate(before);
            let (first, second) = messages.split_at(messages.len() / 2);
            encode_batch(header, first, limit, seal, out)?;
            encode_batch(header, second, limit, seal, out)
        }
        Err(FrameError::TooLong { .. }) => frame::encode_into(&(header, messages), limit, seal, out),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_batches_become_several_frames() {
        let header =
            Header { job: 1.into(), epoch: 0.into(), sender: everfold_protocol::ProcessId::first(0) };
        let messages: Vec<Vec<u64>> = (0..8).map(|n| vec![u64::MAX - n; 50_000]).collect();
        let mut bytes = Vec::new();
        encode_batch(&header, &messages, 64 << 20, &mut Seal::of_strangers(), &mut bytes).unwrap();
        let mut seal = Seal::of_strangers();
        let mut found = Vec::new();
        let mut rest = bytes.as_slice();
        let mut frames = 0;
        while let Some((prelude, _)) = rest.split_first_chunk::<PRELUDE_BYTES>() {
            let len = PRELUDE_BYTES + Prelude::parse(prelude, u64::MAX).unwrap().payload_bytes as usize;
            let (sender, batch): (Header, Vec<Vec<u64>>) =
                frame::decode(&rest[..len], u64::MAX, &mut seal).unwrap().unwrap();
            assert_eq!(sender, header);
            found.extend(batch);
            rest = &rest[len..];
            frames += 1;
        }
        assert_eq!(found, messages);
        assert!(frames > 1);
        assert!(encode_batch(&header, &messages, 1000, &mut seal, &mut Vec::new()).is_err());
    }
}
