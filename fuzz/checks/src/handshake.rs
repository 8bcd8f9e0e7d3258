//! Both sides of the handshake, against a stranger on the other side or on the way.

use everfold_protocol::{
    JobId,
    frame::{FrameError, PRELUDE_BYTES},
    seal::Seal,
};
use everfold_runtime::transport::handshake::{HandshakeError, Hello, Key, Purpose, Seals, accept, connect};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use crate::{
    input::{Input, piece},
    memory::bounded,
    talk::{JOB, KEY, Raw, next_frame, process, sealed, wait_for},
};

/// Room for all that one side says.
const ROOM: usize = 64 << 10;
/// A frame of a stranger, and what is computed of it.
const BYTES_MAX: usize = 64 << 10;

/// # Panics
/// If a stranger gets in, or an honest process does not get in afterwards.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => against_a_stranger(&script(input), true),
        1 => against_a_stranger(&script(input), false),
        _ => with_somebody_on_the_way(input),
    }
}

/// What a stranger says: frames with any payload, or no frames at all.
fn script(mut input: Input<'_>) -> Vec<u8> {
    let says = input.many(8, |input| match input.byte() % 2 {
        0 => input.piece().to_vec(),
        _ => sealed(&Raw(input.piece()), &mut Seal::of_strangers()),
    });
    let mut says = says.concat();
    says.truncate(ROOM / 2);
    says
}

/// The stranger says everything at once and hangs up.
fn against_a_stranger(says: &[u8], as_server: bool) {
    let (mut stranger, mut honest) = duplex(ROOM);
    wait_for(async {
        stranger.write_all(says).await.unwrap();
        stranger.shutdown().await.unwrap();
    });
    let refused = bounded(BYTES_MAX, || {
        wait_for(async {
            match as_server {
                true => accept(&mut honest, &KEY, JOB).await.map(|_| ()),
                false => connect(&mut honest, &KEY, JOB, process(1), Purpose::Control).await.map(|_| ()),
            }
        })
    });
    // Why it is refused depends on what was said.
    match refused {
        Ok(()) => panic!("a stranger without the secret was let in"),
        Err(HandshakeError::TimedOut) => panic!("who hangs up is not waited for"),
        Err(error) => drop(error.to_string()),
    }
    all_is_well(converse(Vec::new(), &KEY, JOB));
}

fn all_is_well((client, server): Outcome) {
    let (client, (hello, server)) = (client.unwrap(), server.unwrap());
    assert_eq!((hello.job, hello.process, hello.purpose), (JOB, process(1), Purpose::Control));
    for (mut outward, mut inward) in [(client.outward, server.inward), (server.outward, client.inward)] {
        let bytes = sealed(&5u8, &mut outward);
        let heard = everfold_protocol::frame::decode::<u8>(&bytes, 1, &mut inward);
        assert_eq!(heard.unwrap(), Some(5));
    }
}

type Outcome = (Result<Seals, HandshakeError>, Result<(Hello, Seals), HandshakeError>);

/// A frame of the conversation, a byte in it, and what is changed there.
type Change = (usize, usize, u8);

/// A client and a server who speak through somebody that changes bytes.
fn converse(changes: Vec<Change>, key: &Key, job: JobId) -> Outcome {
    let ((mut client, near), (far, mut server)) = (duplex(ROOM), duplex(ROOM));
    let asks = async {
        let result = connect(&mut client, key, job, process(1), Purpose::Control).await;
        drop(client);
        result
    };
    let answers = async {
        let result = accept(&mut server, &KEY, JOB).await;
        drop(server);
        result
    };
    let (asked, answered, ()) = wait_for(async { tokio::join!(asks, answers, relay(near, far, changes)) });
    (asked, answered)
}

/// Carries frames to and fro, in turns, until one side says nothing more.
async fn relay(mut near: DuplexStream, mut far: DuplexStream, changes: Vec<Change>) {
    for number in 0.. {
        let (from, to) = if number % 2 == 0 { (&mut near, &mut far) } else { (&mut far, &mut near) };
        let Some(mut frame) = next_frame(from).await else { return };
        for (_, at, with) in changes.iter().filter(|(changed, ..)| *changed == number) {
            let at = at % frame.len();
            // Who hears of a longer frame waits for it, as it should.
            if !(8..12).contains(&at) {
                frame[at] ^= with;
            }
        }
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

fn with_somebody_on_the_way(mut input: Input<'_>) {
    let (job, key) = (JobId(u64::from(input.byte() % 4) + JOB.0), Key([input.byte() % 4 + KEY.0[0]; 32]));
    let changes: Vec<Change> =
        input.many(8, |input| (input.byte() as usize % 4, input.short() as usize, input.byte()));
    let is_changed =
        |(frame, at, with): &Change| *with != 0 && !(8..12).contains(&(at % frame_bytes(*frame)));
    let mut sum = std::collections::BTreeMap::<_, u8>::new();
    for (frame, at, with) in changes.iter().filter(|change| is_changed(change)) {
        *sum.entry((*frame, at % frame_bytes(*frame))).or_default() ^= with;
    }
    let is_honest = sum.values().all(|with| *with == 0);
    let outcome = converse(changes, &key, job);
    if is_honest && job == JOB && key == KEY {
        return all_is_well(outcome);
    }
    if let (Ok(_), Ok(_)) = outcome {
        panic!("both were content although something was changed, or differed");
    }
    if let (Err(HandshakeError::Frame(FrameError::TooLong { .. })), _) = outcome {
        panic!("nobody has said anything long");
    }
    all_is_well(converse(Vec::new(), &KEY, JOB));
}

/// Length of a frame of the conversation: positions in it are taken modulo that.
fn frame_bytes(number: usize) -> usize {
    PRELUDE_BYTES + payload_bytes()[number]
}

fn payload_bytes() -> [usize; 4] {
    use everfold_protocol::codec::encode;
    let hello = 32 + 1 + encode(&(JOB, process(1), 0u8)).unwrap().len();
    [hello, 1 + 64, 32, 1]
}

pub fn samples() -> Vec<Vec<u8>> {
    let nonce = Raw(&[4; 32]);
    let hello = |job: JobId| {
        let hello = (job, process(1), Purpose::Hail, 0u8, Raw(nonce.0));
        everfold_protocol::codec::encode(&hello).unwrap()
    };
    let said = |role: u8, payloads: &[Vec<u8>]| {
        let frames = payloads.iter().map(|payload| [&[1][..], &piece(payload)].concat());
        [vec![role], frames.collect::<Vec<_>>().concat()].concat()
    };
    let bare = sealed(&Raw(&hello(JOB)), &mut Seal::of_strangers());
    vec![
        said(0, &[hello(JOB), vec![3; 32]]),
        said(0, &[hello(JobId(1))]),
        [&[0, 0][..], &piece(&bare)].concat(),
        said(1, &[[&[0][..], &[4; 64]].concat(), vec![0]]),
        said(1, &[vec![1, 5]]),
        said(1, &[vec![2, 1]]),
        vec![2, 0, 0],
        vec![2, 0, 0, 1, 60, 0, 8],
        vec![2, 1, 0],
        vec![2, 0, 1, 3, 28, 0, 1],
    ]
}
