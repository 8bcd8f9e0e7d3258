//! Frames that anybody may have written.

use everfold_protocol::{
    codec,
    frame::{self, FrameError, PRELUDE_BYTES},
    message::{Header, ToMaster},
    seal::{KEY_BYTES, Seal},
};

use crate::{
    input::Input,
    memory::bounded,
    messages,
    talk::{Raw, sealed},
};

type Batch = (Header, Vec<ToMaster>);

/// # Panics
/// If a frame is accepted that nobody has sent, or a good one is not.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let (key, limit, position) = ([input.byte(); KEY_BYTES], u64::from(input.short()), input.word() as usize);
    let bytes = input.rest();
    let decode = |bytes: &[u8], limit| frame::decode::<Batch>(bytes, limit, &mut Seal::new(key));
    let most = messages::bytes_max(bytes.len());

    match bounded(most, || decode(bytes, limit)) {
        Ok(None) => assert!(bytes.len() < PRELUDE_BYTES + limit as usize, "a frame that is whole is one"),
        Err(FrameError::TooLong { bytes, .. }) => assert!(bytes > limit),
        Ok(Some(batch)) => {
            // What follows the frame belongs to the next one.
            let again = sealed(&batch, &mut Seal::new(key));
            assert!(again.len() <= bytes.len());
        }
        Err(_) => {}
    }

    // The same bytes as the payload of a genuine frame.
    let genuine = sealed(&Raw(bytes), &mut Seal::new(key));
    match (bounded(most, || decode(&genuine, u64::MAX)), codec::decode::<Batch>(bytes)) {
        (Ok(Some(a)), Ok(b)) => assert_eq!(sealed(&a, &mut Seal::new(key)), sealed(&b, &mut Seal::new(key))),
        (Err(FrameError::Payload(a)), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        (framed, bare) => panic!("in a frame {framed:?}, without one {bare:?}"),
    }
    if limit < bytes.len() as u64 {
        assert!(matches!(decode(&genuine, limit), Err(FrameError::TooLong { .. })));
    }
    assert!(matches!(decode(&genuine[..position % genuine.len()], u64::MAX), Ok(None)), "it was cut");

    let mut damaged = genuine;
    let bit = position % (damaged.len() * 8);
    damaged[bit / 8] ^= 1 << (bit % 8);
    // A longer announced length only makes the frame incomplete.
    assert!(!matches!(decode(&damaged, u64::MAX), Ok(Some(_)) | Err(FrameError::Payload(_))));
}

pub fn samples() -> Vec<Vec<u8>> {
    let before = [3, 0xff, 0xff, 5, 0, 0, 0];
    let seal = || Seal::new([3; KEY_BYTES]);
    let batches = messages::to_master();
    let payloads = batches.iter().map(|batch| codec::encode(batch).expect("it is a batch"));
    let frames = batches.iter().map(|batch| sealed(batch, &mut seal()));
    payloads.chain(frames).step_by(3).map(|bytes| [&before[..], &bytes].concat()).collect()
}
